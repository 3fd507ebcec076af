"""Budget of the time from submit to end, second by second. PURE.

Every second belongs to one part: a running stage, the queue, a dependency, a time without submitted
work, or `unexplained`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from slurm_jobs.report.attempts import REPORT_RUN, AttemptFacts, elements_of, starts_without_row
from slurm_jobs.report.inputs.run_inputs import RankTiming, ReportInputs
from slurm_jobs.report.standings import Standing
from slurm_jobs.report.steps.attempt_steps import CLOCK_TOLERANCE, AttemptSteps
from slurm_jobs.report.steps.intervals import Interval, budget, merge, total_s
from slurm_jobs.report.steps.profile_waits import profile_times
from slurm_jobs.report.values.stage_model import Bar
from slurm_jobs.run.accounted_starts import CLOCK_SKEW_S, began
from slurm_jobs.shared import units
from slurm_jobs.shared.records.job_key import JobKey
from slurm_jobs.shared.timings.step_records import PROCESS_EXIT_SPAN
from slurm_jobs.shared.units import TimeShare

# Cost of a start of a training besides its steps, as an estimate for further starts.
#
# A start that hung or died before its first step is excluded, and so is unexplained time after the
# last step (a hang until the time limit).


def usual_start_s(
    attempts: Sequence[AttemptSteps], bars: Mapping[int, Bar], timings: Sequence[RankTiming]
) -> float:
    """Return the median of seconds before the first step and, if spans show it, after the last.

    Args:
        attempts: attempts with recorded steps.
        bars: start and end by attempt.
        timings: timings of the same slice, for the spans of the lowest rank.
    """
    around = []
    for attempt in attempts:
        if attempt.attempt not in bars:
            continue
        starts = attempt.records[attempt.longest]["start_unix_s"]
        ranks = [timing for timing in timings if timing.attempt == attempt.attempt]
        spans = min(ranks, key=lambda timing: timing.rank).spans if ranks else ()
        after = merge(
            (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
            for span in spans
            if span["start_unix_s"] > float(starts[-1])
        )
        before_s = max(0.0, float(starts[0]) - bars[attempt.attempt].start_unix_s)
        around.append(before_s + total_s(after))
    return statistics.median(around) if around else 0.0


# Time of a training task from the start of each attempt to its end.
#
# Start-up and wind-down come from the spans of the lowest rank, the time between from the step
# records of the rank that has most. So damage to one file leaves the others usable. Where spans
# are nested, the inner one counts.


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
    claims = [
        (
            AGAIN if not is_first and (loop is None or s["start_unix_s"] < loop[0]) else s["name"],
            "startup",
            [(s["start_unix_s"], s["start_unix_s"] + s["duration_s"])],
        )
        for s in spans
        if loop is None or s["start_unix_s"] < loop[0] or s["start_unix_s"] >= loop[1]
    ]
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
    records = steps.records[steps.longest]
    start, last = float(records["start_unix_s"][0]), records[-1]
    end = float(last["start_unix_s"]) + float(last["step_s"])
    sum_s = float(records["step_s"].sum(dtype=np.float64))
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


Attempts = Mapping[str, tuple[AttemptFacts, ...]]


def run_span(
    inputs: ReportInputs, attempts: Attempts, standing: Mapping[str, Standing]
) -> Interval:
    """Return submit and end of the run, seconds since 1970, without the report's stage.

    The end is the time of reading if anything runs, or waits and can start; otherwise that of the
    last attempt. Stranded slices do not count.
    """
    created = run_begin(inputs)
    ends = [f.bar.end_unix_s for s in _worked(inputs) for f in attempts[s]]
    if not ends:
        ends = [row.end_unix_s for row in inputs.accounting if row.end_unix_s is not None]
    if not ends or any(standing[s].is_open for s in _worked(inputs)):
        return created, max(inputs.read_unix_s, created)
    return created, max(*ends, created)


def run_begin(inputs: ReportInputs) -> float:
    """Return when the run was created by the submitter's clock, or its first job if earlier.

    That is its first submit or start by the scheduler's clock; without accounting by the nodes'.
    """
    moments = [
        moment
        for row in inputs.accounting
        for moment in (row.submit_unix_s, row.start_unix_s)
        if moment is not None
    ]
    started = [a.started_unix_s for stage in inputs.stages for a in stage.attempts]
    return min([_created(inputs), *(moments or started)])


def begin_note(inputs: ReportInputs) -> tuple[str, ...]:
    """Return a note if the run's first job existed before the run; none if the clocks agree."""
    ahead_s = _created(inputs) - run_begin(inputs)
    if ahead_s <= CLOCK_SKEW_S:
        return ()
    host = inputs.run.get("host", "not recorded")
    note = (
        f"the clocks disagree: by that of the machine that submitted it ({host}) the run was "
        f"created {units.seconds(ahead_s)} after its first job was there; it begins with that job"
    )
    return (note,)


def _created(inputs: ReportInputs) -> float:
    return float(inputs.run["created_unix_s"])


def timeline(
    inputs: ReportInputs, attempts: Attempts, span: Interval
) -> tuple[tuple[TimeShare, ...], str]:
    """Return the budget of the whole run from submit to end, and a note on its basis."""
    start, end = span
    rows = inputs.accounting
    running = {stage: attempts[stage] for stage in _worked(inputs)}
    claims: list[tuple[str, str, Sequence[Interval]]] = [
        (
            f"{stage} running",
            "running",
            [(f.bar.start_unix_s, f.bar.end_unix_s) for f in facts if f.record is not None],
        )
        for stage, facts in [*running.items(), *_earlier_reports(inputs, attempts, end).items()]
    ]
    # What Slurm counts as running outside the attempts is the job's.
    jobs = [
        (row.start_unix_s, row.end_unix_s)
        for row in rows
        if row.start_unix_s is not None and row.end_unix_s is not None
    ]
    claims.append(("job start, end, pauses", "startup", jobs))
    claims.append(("requeue wait", "queue", _requeue_waits(attempts)))
    # From eligible to start, or to the run's end for jobs that did not start.
    queue_waits = [
        (row.eligible_unix_s, row.start_unix_s if row.start_unix_s is not None else end)
        for row in rows
        if row.eligible_unix_s is not None
        and (row.start_unix_s is not None or row.state == "PENDING")
    ]
    claims.append(("queue wait", "queue", queue_waits))
    parents_end = _parents_end(inputs)
    waiting = [
        (row.submit_unix_s, min(row.eligible_unix_s, parents_end.get(row.key, math.inf)))
        for row in rows
        if row.submit_unix_s is not None and row.eligible_unix_s is not None
    ]
    claims.append(("waiting for a parent stage", "held", waiting))
    note = _coverage_note(inputs, attempts, end)
    if not note:
        idle = _nothing_submitted(inputs, parents_end, start, end)
        claims.append(("gaps between jobs", "idle", idle))
    return budget(start, end, claims, ("unexplained", "unexplained")), note


def _worked(inputs: ReportInputs) -> list[str]:
    return [stage.name for stage in inputs.stages if stage.run != REPORT_RUN]


def _earlier_reports(
    inputs: ReportInputs, attempts: Attempts, end: float
) -> dict[str, list[AttemptFacts]]:
    """Return reports that were made before a resume, by their stage."""
    return {
        stage.name: [
            fact
            for fact in attempts[stage.name]
            if fact.completion is not None and fact.bar.start_unix_s < end
        ]
        for stage in inputs.stages
        if stage.run == REPORT_RUN
    }


def _requeue_waits(attempts: Attempts) -> list[Interval]:
    """Return the time between two attempts of one job: Slurm requeued it."""
    waits = []
    for facts in attempts.values():
        by_slice = sorted(facts, key=lambda f: (f.bar.slice_index, f.bar.start_unix_s))
        for earlier, later in itertools.pairwise(by_slice):
            same = earlier.bar.slice_index == later.bar.slice_index
            if same and earlier.job == later.job:
                waits.append((earlier.bar.end_unix_s, later.bar.start_unix_s))
    return waits


def _parents_end(inputs: ReportInputs) -> dict[JobKey, float]:
    """Return for each job that never began when its last possible parent ended.

    Possible parents were submitted before it. From then on it waits for no job: either it can
    start, or it never will.
    """
    elements = elements_of(inputs)
    submits: dict[JobKey, float] = {}
    for row in inputs.accounting:
        if row.submit_unix_s is not None:  # a requeue gives a job a later one
            submits[row.key] = min(row.submit_unix_s, submits.get(row.key, math.inf))
    jobs: dict[str, list[tuple[float, float]]] = {}
    for row in inputs.accounting:
        if row.key in elements and row.key in submits and began(row):
            end = row.end_unix_s if row.end_unix_s is not None else inputs.read_unix_s
            jobs.setdefault(elements[row.key].stage, []).append((submits[row.key], end))
    ancestors: dict[str, set[str]] = {}
    for stage in inputs.stages:  # parents first
        above = (name for parent in stage.after for name in ancestors.get(parent, ()))
        ancestors[stage.name] = {*stage.after, *above}
    latest: dict[JobKey, float] = {}
    same: dict[tuple[str, float], float] = {}  # of the elements of an array, listed once
    for row in inputs.accounting:
        if began(row) or row.key not in elements or row.key not in submits:
            continue
        name, submitted = key = (elements[row.key].stage, submits[row.key])
        if key not in same:
            parents = (job for ancestor in ancestors[name] for job in jobs.get(ancestor, ()))
            same[key] = max((end for at, end in parents if at <= submitted), default=math.inf)
        latest[row.key] = same[key]
    return latest


def _nothing_submitted(
    inputs: ReportInputs, parents_end: Mapping[JobKey, float], start: float, end: float
) -> list[Interval]:
    """Return the time before the first submit, and from the end of all jobs to the next submit."""
    spans = sorted(
        (
            row.submit_unix_s,
            min(
                row.end_unix_s if row.end_unix_s is not None else end,
                parents_end.get(row.key, math.inf),
            ),
        )
        for row in inputs.accounting
        if row.submit_unix_s is not None
    )
    idle = []
    covered_until = start
    for submit, ended in spans:
        if submit > covered_until:
            idle.append((covered_until, submit))
        covered_until = max(covered_until, ended)
    return idle


def _coverage_note(inputs: ReportInputs, attempts: Attempts, end: float) -> str:
    """Return why the queue wait is not fully known; empty if it is."""
    if not inputs.accounting:
        return (
            "no accounting was available: queue wait cannot be distinguished from other gaps, "
            "which count as unexplained"
        )
    earlier = _earlier_reports(inputs, attempts, end)
    facts = {**{stage: attempts[stage] for stage in _worked(inputs)}, **earlier}
    starts, num_starts = starts_without_row(
        f for stage_facts in facts.values() for f in stage_facts
    )
    if starts:
        lacking = sorted(set(starts))
        shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
        return (
            f"the accounting lacks {len(starts)} of {num_starts} starts (jobs {shown}): "
            "their queue wait counts as unexplained"
        )
    return ""
