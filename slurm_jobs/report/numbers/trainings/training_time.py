"""Time of a training task from the start of each attempt to its end. PURE.

Start-up and wind-down come from the spans of the lowest rank, the time between from the step
records of the rank that has most. So damage to one file leaves the others usable. Where spans
are nested, the inner one counts.
"""

from __future__ import annotations

import math
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
_UNEXPLAINED = ("unexplained", "unexplained")
"""Name and kind of the time that nothing explains."""


def attempt_budget(
    attempts: Sequence[AttemptSteps], bars: Mapping[int, Bar], timings: Sequence[RankTiming]
) -> tuple[TimeShare, ...]:
    """Return shares of all attempts together; they add up to the sum of the attempts' lengths.

    The unexplained time is last.

    Args:
        attempts: attempts with recorded steps.
        bars: start and end by attempt.
        timings: timings of the same slice, for the spans.
    """
    seconds: dict[tuple[str, str], float] = {}
    unexplained_s = 0.0
    by_attempt = {a.attempt: a for a in attempts}
    for number, bar in sorted(bars.items()):
        ranks = [t for t in timings if t.attempt == number]
        lead = min(ranks, key=lambda t: t.rank) if ranks else None
        parts = _one_attempt(bar, by_attempt.get(number), lead, is_first=number == min(bars))
        unexplained_s += parts.pop(_UNEXPLAINED, 0.0)
        for key, value in _in_order(parts, lead):
            seconds[key] = seconds.get(key, 0.0) + value
    seconds[_UNEXPLAINED] = unexplained_s
    whole_s = sum(seconds.values())
    return tuple(
        TimeShare(name=name, kind=kind, seconds=value, share=value / whole_s)
        for (name, kind), value in seconds.items()
        if whole_s > 0 and (value > 0 or kind == "unexplained")
    )


def _in_order(
    parts: Mapping[tuple[str, str], float], lead: RankTiming | None
) -> list[tuple[tuple[str, str], float]]:
    """Sort the parts by their first begin: spans before the loop, the loop, the rest.

    A part of the kind `startup` begins with the first span of its name, every other part with the
    loop. Parts without a known begin are last.
    """
    span_begins: dict[str, float] = {}
    for span in lead.spans if lead else ():
        span_begins.setdefault(span["name"].replace("_", " "), span["start_unix_s"])
    loop_begin = math.inf
    if lead is not None and lead.steps is not None and len(lead.steps.steps):
        loop_begin = float(lead.steps.steps["start_unix_s"][0])
    begins: dict[tuple[str, str], float] = {}
    for name, kind in parts:
        if kind == "startup":
            begins[name, kind] = span_begins.get(name, math.inf)
        else:
            begins[name, kind] = loop_begin
    return sorted(parts.items(), key=lambda part: begins[part[0]])


def _one_attempt(
    bar: Bar, steps: AttemptSteps | None, lead: RankTiming | None, *, is_first: bool
) -> dict[tuple[str, str], float]:
    """Return the seconds of an attempt by name and kind: start-up, unexplained, the loop's parts.

    The first claim to a second wins: the loop's, then those of the spans from the shortest to the
    longest, so that the inner one of nested spans counts.
    """
    claims: list[tuple[str, str, list[Interval]]] = []
    loop = None if steps is None else _loop_of(steps, bar.end_unix_s)
    if loop is not None:
        claims.append(("loop", "loop", [loop]))
    spans = sorted(lead.spans if lead else (), key=lambda s: s["duration_s"])
    for span in spans:
        start = span["start_unix_s"]
        is_before = loop is None or start < loop[0]
        is_after = loop is not None and start >= loop[1]
        if is_before or is_after:
            name = AGAIN if is_before and not is_first else span["name"]
            claims.append((name, "startup", [(start, start + span["duration_s"])]))
    exits = [s for s in spans if s["name"] == PROCESS_EXIT_SPAN]
    if exits:  # later time is not this rank's
        gone = max(s["start_unix_s"] + s["duration_s"] for s in exits)
        claims.append((_AFTER_EXIT, "startup", [(gone, bar.end_unix_s)]))
    parts: dict[tuple[str, str], float] = {}
    loop_s = 0.0
    for share in budget(bar.start_unix_s, bar.end_unix_s, claims, _UNEXPLAINED):
        if share.kind == "loop":
            loop_s = share.seconds
            continue
        key = (share.name.replace("_", " "), share.kind)
        parts[key] = parts.get(key, 0.0) + share.seconds
    if steps is not None and loop_s > 0:
        parts |= _loop_parts(steps, loop_s, bar.end_unix_s)
    return parts


def _loop_of(steps: AttemptSteps, latest_s: float) -> Interval:
    """Return the span from the first step to the end of the last.

    If a clock was set, it is as long as its steps. `latest_s` is when the attempt ended.
    """
    start, end = steps.begun_unix_s, steps.ended_unix_s
    sum_s = float(steps.records[steps.longest]["step_s"].sum(dtype=np.float64))
    is_too_short = end - start < (1 - CLOCK_TOLERANCE) * sum_s
    is_too_late = end > latest_s + CLOCK_SKEW_S
    if is_too_short or is_too_late:
        end = start + sum_s
    return start, end


def _loop_parts(
    steps: AttemptSteps, loop_s: float, latest_s: float
) -> dict[tuple[str, str], float]:
    """Return the loop's seconds: steps, checkpoints, evaluation, uncounted steps, and gaps."""
    longest = steps.longest
    kept = steps.kept(longest)
    inside_steps = {(f"{name} in the loop", name): _sum_s(kept, f"{name}_s") for name in _IN_LOOP}
    in_steps = {
        **inside_steps,
        ("steps", "forward"): _sum_s(kept, "step_s") - sum(inside_steps.values()),
        ("steps repeated later", "repeated"): _sum_s(steps.repeated(longest), "step_s"),
        ("steps of an earlier config", "idle"): _sum_s(steps.abandoned(longest), "step_s"),
    }
    sum_s = sum(in_steps.values())
    if sum_s > loop_s:
        # By other clocks the attempt ended before its steps did: no time is left between them.
        return {part: seconds * loop_s / sum_s for part, seconds in in_steps.items()}
    begin, end = _loop_of(steps, latest_s)
    profiles_s = total_s(
        (max(a, begin), min(b, end)) for a, b in profile_times(steps.ranks) if b > begin and a < end
    )
    profiles_s = min(profiles_s, loop_s - sum_s)
    return {
        **in_steps,
        (_PROFILES, "between"): profiles_s,
        ("between steps", "between"): loop_s - sum_s - profiles_s,
    }


def _sum_s(records: np.ndarray, field: str) -> float:
    return float(records[field].sum(dtype=np.float64))
