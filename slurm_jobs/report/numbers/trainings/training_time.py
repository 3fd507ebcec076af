"""Time of a training task from the start of each attempt to its end. PURE.

Start-up and wind-down come from the spans of the lowest rank, the time between from the step
records of the rank that has most. So damage to one file leaves the others usable. Where spans
are nested, the inner one counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.formats.timings.step_records import PROCESS_EXIT_SPAN
from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.steps.attempt_steps import CLOCK_TOLERANCE, AttemptSteps
from slurm_jobs.report.steps.intervals import Interval, budget, merge, total_s
from slurm_jobs.report.steps.profile_waits import profile_times
from slurm_jobs.report.values.stage_model import Bar
from slurm_jobs.run.accounted_starts import CLOCK_SKEW_S


def usual_start_s(
    attempts: Sequence[AttemptSteps], bars: Mapping[int, Bar], timings: Sequence[RankTiming]
) -> float:
    """Return the median of seconds before the first step and, if spans show it, after the last.

    It is an estimate for further starts. A start that hung or died before its first step is
    excluded, and so is unexplained time after the last step (a hang until the time limit).

    Args:
        attempts: attempts with recorded steps.
        bars: start and end by attempt.
        timings: timings of the same slice, for the spans of the lowest rank.
    """
    around = []
    for attempt in attempts:
        if attempt.attempt not in bars:
            continue
        last_start = float(attempt.records[attempt.longest]["start_unix_s"][-1])
        ranks = [timing for timing in timings if timing.attempt == attempt.attempt]
        spans = min(ranks, key=lambda timing: timing.rank).spans if ranks else ()
        after = merge(
            (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
            for span in spans
            if span["start_unix_s"] > last_start
        )
        before_s = max(0.0, attempt.begun_unix_s - bars[attempt.attempt].start_unix_s)
        around.append(before_s + total_s(after))
    return statistics.median(around) if around else 0.0


AGAIN = "start-up again"
"""Time before the steps of every attempt but the first: the price of a stop or a failure."""
_IN_LOOP = ("checkpoint", "evaluation", "compile")
"""Step phases that are shown separately from the training."""
_AFTER_EXIT = "other ranks and supervisor"
"""From the end of the rank's process to that of the attempt."""
_PROFILES = "profiles begun and written"
"""By any rank: the others wait."""


def attempt_budget(
    attempts: Sequence[AttemptSteps], bars: Mapping[int, Bar], timings: Sequence[RankTiming]
) -> tuple[TimeShare, ...]:
    """Return shares of all attempts together; they add up to the sum of the attempts' lengths.

    Args:
        attempts: attempts with recorded steps.
        bars: start and end by attempt.
        timings: timings of the same slice, for the spans.
    """
    seconds: dict[tuple[str, str], float] = {}
    by_attempt = {a.attempt: a for a in attempts}
    for number, bar in sorted(bars.items()):
        ranks = [t for t in timings if t.attempt == number]
        lead = min(ranks, key=lambda t: t.rank) if ranks else None
        parts = _one_attempt(bar, by_attempt.get(number), lead, is_first=number == min(bars))
        for key, value in _in_order(parts, lead):
            seconds[key] = seconds.get(key, 0.0) + value
    rest = seconds.pop(("unexplained", "unexplained"), 0.0)
    seconds["unexplained", "unexplained"] = rest
    whole_s = sum(seconds.values())
    return tuple(
        TimeShare(name=name, kind=kind, seconds=value, share=value / whole_s)
        for (name, kind), value in seconds.items()
        if whole_s > 0 and (value > 0 or kind == "unexplained")
    )


def _in_order(
    parts: Mapping[tuple[str, str], float], lead: RankTiming | None
) -> list[tuple[tuple[str, str], float]]:
    """Sort the parts by their first begin: spans before the loop, the loop, the rest."""
    began: dict[str, float] = {}
    for span in lead.spans if lead else ():
        began.setdefault(span["name"].replace("_", " "), span["start_unix_s"])
    if lead is not None and lead.steps is not None and len(lead.steps.steps):
        loop = float(lead.steps.steps["start_unix_s"][0])
        began |= {name: loop for name, kind in parts if kind not in {"startup", "unexplained"}}
    return sorted(parts.items(), key=lambda part: began.get(part[0][0], float("inf")))


def _one_attempt(
    bar: Bar, steps: AttemptSteps | None, lead: RankTiming | None, *, is_first: bool
) -> dict[tuple[str, str], float]:
    loop = None if steps is None else _loop_of(steps, bar.end_unix_s)
    spans = sorted(lead.spans if lead else (), key=lambda s: s["duration_s"])
    claims: list[tuple[str, str, list[Interval]]] = []
    for span in spans:
        start = span["start_unix_s"]
        is_before = loop is None or start < loop[0]
        if is_before or (loop is not None and start >= loop[1]):
            name = AGAIN if is_before and not is_first else span["name"]
            claims.append((name, "startup", [(start, start + span["duration_s"])]))
    exits = [s for s in spans if s["name"] == PROCESS_EXIT_SPAN]
    if exits:  # later time is not this rank's
        gone = max(s["start_unix_s"] + s["duration_s"] for s in exits)
        claims.append((_AFTER_EXIT, "startup", [(gone, bar.end_unix_s)]))
    loop_claim = [("loop", "loop", [loop])] if loop else []
    shares = budget(
        bar.start_unix_s,
        bar.end_unix_s,
        [*loop_claim, *claims],
        ("unexplained", "unexplained"),
    )
    parts: dict[tuple[str, str], float] = {}
    for share in sorted(shares, key=lambda s: s.kind == "loop"):
        if share.kind == "loop" and steps is not None:
            for key, value in _loop_parts(steps, share.seconds, bar.end_unix_s).items():
                parts[key] = parts.get(key, 0.0) + value
        else:
            key = (share.name.replace("_", " "), share.kind)
            parts[key] = parts.get(key, 0.0) + share.seconds
    return parts


def _loop_of(steps: AttemptSteps, latest_s: float) -> Interval:
    """Return the span from the first step to the end of the last.

    If a clock was set, it is as long as its steps. `latest_s` is when the attempt ended.
    """
    start, end = steps.begun_unix_s, steps.ended_unix_s
    sum_s = float(steps.records[steps.longest]["step_s"].sum(dtype=np.float64))
    was_set = end - start < (1 - CLOCK_TOLERANCE) * sum_s or end > latest_s + CLOCK_SKEW_S
    return start, start + sum_s if was_set else end


def _loop_parts(
    steps: AttemptSteps, loop_s: float, latest_s: float
) -> dict[tuple[str, str], float]:
    """Return the loop's seconds: steps, checkpoints, evaluation, uncounted steps, and gaps."""
    longest = steps.longest
    rows = steps.kept(longest)
    parts = {
        (f"{name} in the loop", name): float(rows[f"{name}_s"].sum(dtype=np.float64))
        for name in _IN_LOOP
    }
    parts["steps", "forward"] = float(rows["step_s"].sum(dtype=np.float64)) - sum(parts.values())
    for name, kind, records in (
        ("steps repeated later", "repeated", steps.repeated(longest)),
        ("steps of an earlier config", "idle", steps.abandoned(longest)),
    ):
        parts[name, kind] = float(records["step_s"].sum(dtype=np.float64))
    sum_s = sum(parts.values())
    if sum_s > loop_s:  # by other clocks the attempt ended before its steps did
        return {part: seconds * loop_s / sum_s for part, seconds in parts.items()}
    begin, end = _loop_of(steps, latest_s)
    profiles_s = total_s(
        (max(a, begin), min(b, end)) for a, b in profile_times(steps.ranks) if b > begin and a < end
    )
    profiles_s = min(profiles_s, loop_s - sum_s)
    between = {_PROFILES: profiles_s, "between steps": loop_s - sum_s - profiles_s}
    return parts | {(name, "between"): seconds for name, seconds in between.items()}
