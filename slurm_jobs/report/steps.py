"""Step records of one task, attempt by attempt, with repeated steps marked. PURE.

Only steps that the same training did again are repeated. A resume with another config may begin
another training; the steps that it did not continue are abandoned. A phase together with earlier
ones is one training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.values.training_model import Pace
from slurm_jobs.shared import units
from slurm_jobs.shared.statistics import CONFIDENCE, stretch_speeds, two_sided
from slurm_jobs.shared.timings import PROFILE_WRITE_SPAN
from slurm_jobs.shared.units import TimeShare

# Sets of time as lists of intervals.
#
# `budget` assigns every second of a span to the first claim that covers it, so that its parts add
# up to the whole by construction.


Interval = tuple[float, float]
"""Start and end in seconds, start <= end."""


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the set as sorted disjoint intervals; empty ones are dropped."""
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def subtract(whole: Sequence[Interval], parts: Sequence[Interval]) -> list[Interval]:
    """Return `whole` without `parts`; both disjoint and sorted, as `merge` returns them."""
    left: list[Interval] = []
    first = 0
    for start, end in whole:
        at = start
        while first < len(parts) and parts[first][1] <= start:
            first += 1
        index = first
        while index < len(parts) and parts[index][0] < end:
            if parts[index][0] > at:
                left.append((at, parts[index][0]))
            at = max(at, parts[index][1])
            index += 1
        if at < end:
            left.append((at, end))
    return left


def total_s(intervals: Iterable[Interval]) -> float:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in intervals)


def max_overlap(intervals: Iterable[Interval]) -> int:
    """Return the largest number of intervals that overlap."""
    edges = sorted(
        edge for start, end in intervals for edge in ((start, 1), (end, -1)) if end > start
    )
    most = running = 0
    for _, change in edges:
        running += change
        most = max(most, running)
    return most


def budget(
    start_s: float,
    end_s: float,
    claims: Sequence[tuple[str, str, Sequence[Interval]]],
    rest: tuple[str, str],
) -> tuple[TimeShare, ...]:
    """Divide the span from `start_s` to `end_s` among `claims`; earlier claims win.

    Args:
        start_s: start of the span, seconds.
        end_s: its end.
        claims: name, kind and intervals of each part.
        rest: name and kind of the unclaimed time.

    Returns:
        The parts that have any time, in the order of the claims, the rest last.
    """
    left = merge([(start_s, end_s)])
    whole_s = total_s(left)
    shares = []
    for name, kind, intervals in claims:
        after = subtract(left, merge(intervals))
        shares.append((name, kind, total_s(left) - total_s(after)))
        left = after
    shares.append((*rest, total_s(left)))
    return tuple(
        TimeShare(name=name, kind=kind, seconds=seconds, share=seconds / whole_s)
        for name, kind, seconds in shares
        if whole_s > 0 and (seconds > 1e-6 * whole_s or (name, kind) == rest)
    )


# Removal of waits for the profile that another rank wrote. PURE, vectorised.


_SPANS = frozenset({"profile_prepare", PROFILE_WRITE_SPAN})
_WAITS = (("rank_wait_s", "step_s"), ("device_rank_wait_s", "device_step_s"))
"""A wait for other ranks, and the step that contains it; NaN where no device was timed."""


def profile_times(timings: Iterable[RankTiming]) -> list[Interval]:
    """Return when one of these ranks prepared or wrote its profile."""
    return merge(
        (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
        for timing in timings
        for span in timing.spans
        if span["name"] in _SPANS
    )


def without_profile_waits(
    members: Sequence[tuple[RankTiming, np.ndarray]],
) -> list[tuple[RankTiming, np.ndarray]]:
    """Return the ranks of one attempt, with records without their waits for others' profiles.

    A rank writes its profile between two steps, while the other ranks already wait inside their
    next step. This removes that wait: their step starts when the profile is written. Otherwise it
    would look slow, or would seem to wait for a slow rank.
    """
    corrected = []
    for timing, steps in members:
        times = profile_times(other for other, _ in members if other is not timing)
        if not times:
            corrected.append((timing, steps))
            continue
        starts, ends = steps["start_unix_s"], steps["start_unix_s"] + steps["step_s"]
        overlaps = [np.minimum(ends, end) - np.maximum(starts, start) for start, end in times]
        within = np.sum([np.maximum(overlap, 0) for overlap in overlaps], axis=0)
        without: np.ndarray = steps.copy()
        without["start_unix_s"] = steps["start_unix_s"] + np.minimum(within, steps["rank_wait_s"])
        part = steps["rank_wait_data_s"]  # first in the step; NaN stays NaN
        without["rank_wait_data_s"] = part - np.minimum(within, part)
        for wait, whole in _WAITS:
            waited = np.minimum(within, steps[wait])
            without[wait] = steps[wait] - waited
            without[whole] = steps[whole] - waited
        corrected.append((timing, without))
    return corrected


Members = Sequence[tuple[RankTiming, np.ndarray]]
"""Ranks of an attempt that recorded steps, each with its records."""

Phases = Sequence[tuple[int, str]]
"""First steps of phases, ascending from 0, and names of the trainings of their steps."""

_NEVER = int(np.iinfo(np.int64).max)
CLOCK_TOLERANCE = 0.01
"""Allowed difference of wall clock and sum of step times. Own choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptSteps:
    """Step records of one attempt, a structured array per rank, fields as in `STEP_FIELDS`."""

    attempt: int
    ranks: tuple[RankTiming, ...]
    records: tuple[np.ndarray, ...]
    """Shape [steps of that rank], all that were recorded."""
    num_kept: tuple[int, ...]
    """Number of each rank's records that count: no later attempt did those steps."""
    is_repeated: tuple[np.ndarray, ...]
    """One bool for each record of a rank after those that count. True: a later attempt at the same
    training repeated the step. False: the step was abandoned."""
    warmup_steps: int
    num_ranks: int
    """Ranks of the attempt; more than `ranks` if some left no step."""

    @property
    def num_common(self) -> int:
        """Steps that count and that all of `ranks` recorded: a killed rank may lack the last."""
        return min(self.num_kept)

    @property
    def num_measured(self) -> int:
        """Steps that count for all ranks, after the warm-up."""
        return max(0, self.num_common - self.warmup_steps)

    @property
    def longest(self) -> int:
        """Index of the rank with most records: a step that one rank finished, all did."""
        return max(range(len(self.records)), key=lambda index: len(self.records[index]))

    def kept(self, index: int) -> np.ndarray:
        """Return the records of the rank at `index` that count."""
        return self.records[index][: self.num_kept[index]]

    def abandoned(self, index: int) -> np.ndarray:
        """Return the records of the rank at `index` that the training after it did not continue."""
        steps: np.ndarray = self.records[index][self.num_kept[index] :]
        return steps.compress(~self.is_repeated[index])

    def repeated(self, index: int) -> np.ndarray:
        """Return the records of the rank at `index` that the same training repeated later."""
        steps: np.ndarray = self.records[index][self.num_kept[index] :]
        return steps.compress(self.is_repeated[index])

    def measured(self, index: int) -> np.ndarray:
        """Return the records of the rank at `index` that count for all, after the warm-up."""
        return self.records[index][self.warmup_steps : self.num_common]

    def measured_s(self) -> float:
        """Return the time of the measured steps, from the sums of their lengths.

        Steps follow each other without a gap, and sums are not affected by a clock that is set,
        unlike the difference between two wall times.
        """
        sums = (self.measured(i)["step_s"].sum(dtype=np.float64) for i in range(len(self.ranks)))
        return float(max(sums))


def last_losses(attempts: Sequence[AttemptSteps]) -> np.ndarray:
    """Return the finite losses of the last 2 % of the steps that count, at least one if possible.

    One step's loss says little.
    """
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in attempts])
    losses = losses[np.isfinite(losses)]
    last: np.ndarray = losses[-max(1, len(losses) // 50) :]
    return last


def split_attempts(
    timings: Sequence[RankTiming], warmup_steps: int, fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """Split the timings of one slice by attempt, with uncounted steps marked.

    Args:
        timings: timings of one slice.
        warmup_steps: at the start of each attempt.
        fingerprints: hash of config and code by attempt; unknown ones count as equal.
    """
    by_attempt: dict[int, list[tuple[RankTiming, np.ndarray]]] = {}
    for timing in timings:
        if timing.steps is not None and len(timing.steps.steps):
            by_attempt.setdefault(timing.attempt, []).append((timing, timing.steps.steps))
    by_attempt = {a: without_profile_waits(members) for a, members in by_attempt.items()}
    trainings = _trainings(by_attempt, fingerprints)
    split: list[AttemptSteps] = []
    firsts: dict[str, int] = {}  # first step of the later attempts, by training
    for attempt in sorted(by_attempt, reverse=True):
        members = sorted(by_attempt[attempt], key=lambda member: member[0].rank)
        phases = trainings[attempt]
        records = tuple(steps for _, steps in members)
        end = min((_NEVER, *firsts.values()))
        num_kept = tuple(int(np.searchsorted(steps["step"], end)) for steps in records)
        said_ranks = [
            int(timing.steps.metadata.get("num_ranks", 0))
            for timing, _ in members
            if timing.steps is not None
        ]
        split.append(
            AttemptSteps(
                attempt=attempt,
                ranks=tuple(timing for timing, _ in members),
                records=records,
                num_kept=num_kept,
                is_repeated=tuple(
                    _is_repeated(steps[num:], phases, firsts)
                    for steps, num in zip(records, num_kept, strict=True)
                ),
                warmup_steps=warmup_steps,
                num_ranks=max([*said_ranks, len(members)]),
            )
        )
        begun = _first_step(members)
        ends = [*(start for start, _ in phases[1:]), _NEVER]
        for (start, name), phase_end in zip(phases, ends, strict=True):
            if phase_end > begun:
                firsts[name] = min(firsts.get(name, _NEVER), max(start, begun))
    return tuple(reversed(split))


def _is_repeated(steps: np.ndarray, phases: Phases, firsts: Mapping[str, int]) -> np.ndarray:
    """Return for each record (bool) whether a later attempt repeated the step."""
    limits = np.array([firsts.get(name, _NEVER) for _, name in phases])
    numbers = np.searchsorted([start for start, _ in phases], steps["step"], side="right") - 1
    repeated: np.ndarray = steps["step"] >= limits[numbers]
    return repeated


def _trainings(
    by_attempt: Mapping[int, Members], fingerprints: Mapping[int, str]
) -> dict[int, Phases]:
    """Return by attempt names for the trainings of its steps.

    A phase that an attempt begins is recorded together with earlier ones, which identifies the
    training. Records of older versions lack that; a change of config or code then separates
    trainings. An attempt that continues keeps the previous attempt's training, whatever its config
    and code.
    """
    trainings: dict[int, Phases] = {}
    known: dict[str, str] = {}  # from the records, or the fingerprint
    before: Phases = ()
    for attempt in sorted(by_attempt):
        members = by_attempt[attempt]
        begun = _first_step(members)
        phases = []
        for start, name in _said_phases(members, fingerprints.get(attempt, "")):
            if before and start < begun:  # it continues what the previous attempt did there
                known[name] = next(
                    earlier_phases for first, earlier_phases in reversed(before) if first <= start
                )
            known.setdefault(name, f"from step {start} of attempt {attempt}")
            phases.append((start, known[name]))
        trainings[attempt] = before = phases
    return trainings


def _said_phases(members: Members, fingerprint: str) -> Phases:
    """Return the recorded phases; older versions recorded all phases together, or none."""
    files = [timing.steps.metadata for timing, _ in members if timing.steps is not None]
    for metadata in files:
        phases = metadata.get("phases") or ()
        if phases and all("training" in phase for phase in phases):
            return [(int(phase["first_step"]), str(phase["training"])) for phase in phases]
    name = next((str(metadata["training"]) for metadata in files if metadata.get("training")), "")
    return [(0, name or fingerprint)]


def _first_step(members: Members) -> int:
    return min(int(steps["step"][0]) for _, steps in members)


# Attempts and steps that represent the current state of a training.
#
# A resume may have changed config or code, and phases of a training do different work.


def of_newest(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """Return the attempts under the config and code of the last, in order.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt; unknown ones count as equal.
    """
    now = fingerprints.get(attempts[-1].attempt, "")
    return tuple(a for a in attempts if fingerprints.get(a.attempt, "") == now)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePlace:
    """Phase of a training."""

    first_step: int
    is_last: bool
    num_phases: int


def phase_of(attempt: AttemptSteps) -> PhasePlace:
    """Return the phase of the last step that counts; a training without phases has only one."""
    file = attempt.ranks[0].steps
    listed = (file.metadata.get("phases") if file is not None else None) or [{}]
    firsts = [int(phase.get("first_step", 0)) for phase in listed]
    steps = attempt.kept(attempt.longest)
    last = int(steps["step"][-1]) if len(steps) else 0
    number = max(0, int(np.searchsorted(firsts, last, side="right")) - 1)
    return PhasePlace(
        first_step=firsts[number], is_last=number == len(firsts) - 1, num_phases=len(firsts)
    )


# Steps of a training that its rules judge.
#
# A resume may have replaced the config, and advice is for the newest: problems of an earlier one
# may be fixed already.


MIN_STEPS = 20
"""Fewer measured steps are not judged: one slow step would be 5 % of them, which is the lower of
XProf's bands."""


def judged_attempts(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """Return the attempts under the newest config and code if they have enough steps; else all.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt.
    """
    newest = of_newest(attempts, fingerprints)
    return newest if _num_measured(newest) >= MIN_STEPS else tuple(attempts)


def mixed_note(
    attempts: Sequence[AttemptSteps], fingerprints: Mapping[int, str]
) -> tuple[str, ...]:
    """Return which steps the findings use, if config or code changed; empty if they did not."""
    newest = _num_measured(of_newest(attempts, fingerprints))
    whole = _num_measured(attempts)
    if newest == whole:
        return ()
    steps = units.number_of("measured step", newest)
    note = (
        f"findings use only the {steps} under the newest config and code; rates and shares also "
        f"include the {whole - newest:,} under earlier ones"
    )
    if newest < MIN_STEPS:
        steps = units.number_of("measured step", whole)
        note = (
            f"only {newest:,} of the {steps} ran under the newest config and code, so findings "
            "also use earlier ones, and may be fixed already"
        )
    return (note,)


def _num_measured(attempts: Sequence[AttemptSteps]) -> int:
    return sum(attempt.num_measured for attempt in attempts)


# Time of a training step from start to start, and its uncertainty.


def find_pace(
    attempts: Sequence[AttemptSteps],
    fingerprints: Mapping[int, str],
    timings: Sequence[RankTiming] = (),
) -> Pace | None:
    """Return the pace of the newest phase and config, on as many ranks as the last attempt.

    None if fewer than `statistics.MIN_BLOCK_STEPS` steps of that phase and config were measured.
    Checkpoints and evaluation in the loop are included, because they will recur.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt.
        timings: timings of the slice, including starts without a step.
    """
    newest = attempts[-1]
    phase = phase_of(newest)
    complete = [
        a
        for a in of_newest(attempts, fingerprints)
        if a.num_ranks == newest.num_ranks == len(a.ranks) and a.num_measured
    ]
    lengths, num_samples = [np.empty(0)], 0.0
    for attempt in complete:
        ranks = [attempt.measured(index) for index in range(len(attempt.ranks))]
        in_phase = ranks[attempt.longest]["step"] >= phase.first_step
        lengths.append(ranks[attempt.longest]["step_s"][in_phase])
        num_samples += sum(
            float(rank["num_samples"][in_phase].sum(dtype=np.float64)) for rank in ranks
        )
    seconds = np.concatenate(lengths)
    speeds = stretch_speeds(np.ones(len(seconds)), seconds.astype(np.float64))
    if not speeds:
        return None
    times = [1 / speed for speed in speeds]
    file = newest.ranks[0].steps
    num_planned = file.metadata.get("num_steps") if file is not None else None
    steps = newest.kept(newest.longest)
    saved = steps["step"][steps["checkpoint_s"] > 0]
    loaded_steps = [
        span["step"]
        for timing in sorted(timings, key=lambda timing: timing.attempt)
        for span in timing.spans
        if timing.attempt > newest.attempt
        and span["name"] == "checkpoint_load"
        and isinstance(span.get("step"), int)
    ]
    num_saved = int(steps["step"][0]) if len(steps) else 0
    return Pace(
        num_ranks=newest.num_ranks,
        step_s=statistics.mean(times),
        spread_s=statistics.stdev(times),
        num_steps=len(seconds),
        num_stretches=len(times),
        samples_per_step=num_samples / len(seconds),
        num_planned=int(num_planned) if num_planned else None,
        num_done=int(newest.records[newest.longest]["step"][-1]) + 1,
        num_saved=int(saved[-1]) + 1 if len(saved) else num_saved,
        num_phases=phase.num_phases,
        is_last_phase=phase.is_last,
        attempt=newest.attempt,
        warmup_s=_warmup_s(complete, phase.first_step, statistics.mean(times)),
        num_loaded=int(loaded_steps[-1]) if loaded_steps and phase.num_phases == 1 else None,
    )


def _warmup_s(attempts: Sequence[AttemptSteps], first_step: int, step_s: float) -> float:
    """Return the extra time of warm-up steps.

    For an attempt that began in an earlier phase, whose pace differs, it is only compilation.
    """
    extra = []
    for attempt in attempts:
        records = attempt.records[attempt.longest]
        steps = records[: attempt.warmup_steps]
        whole_s = float(steps["step_s"].sum(dtype=np.float64)) - len(steps) * step_s
        if records["step"][0] < first_step:
            whole_s = float(steps["compile_s"].sum(dtype=np.float64))
        extra.append(max(0.0, whole_s))
    return statistics.median(extra)


def time_of(pace: Pace, num_steps: int) -> tuple[float, float]:
    """Return the range of seconds that so many further steps take, at 95 %.

    It is a prediction interval: the means of future and past stretches differ by the uncertainty of
    both. Events that did not occur in the past are not included.
    """
    ahead = max(1.0, num_steps * pace.num_stretches / pace.num_steps)
    half = (
        two_sided(CONFIDENCE, pace.num_stretches - 1)
        * pace.spread_s
        * math.sqrt(1 / pace.num_stretches + 1 / ahead)
    )
    return num_steps * max(0.0, pace.step_s - half), num_steps * (pace.step_s + half)


# Gaps and contradictions in the step records of one task, in words.


def step_notes(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return notes on gaps and contradictions."""
    notes: list[str] = []
    for attempt in attempts:
        name = f"attempt {attempt.attempt}"
        if num_abandoned := len(attempt.abandoned(attempt.longest)):
            notes.append(
                f"{name}: {units.number_of('step', num_abandoned)} under an earlier config or "
                "code, which no later attempt continued: other work, neither progress nor repeated"
            )
        if lacking := attempt.num_ranks - len(attempt.ranks):
            notes.append(
                f"{name}: {lacking} of {attempt.num_ranks} ranks left no step records; "
                "its steps are left out of the rates"
            )
        fewest, most = min(attempt.num_kept), max(attempt.num_kept)
        if fewest < most:
            short = attempt.ranks[attempt.num_kept.index(fewest)].rank
            notes.append(
                f"{name}: the ranks recorded unequal numbers of steps ({fewest:,} by rank "
                f"{short}, {most:,} at most; normal where an attempt was killed or "
                "still runs); rates and shares are of those that all recorded"
            )
        share, wall_s, rank = _off_the_clock(attempt)
        if share > CLOCK_TOLERANCE:
            notes.append(
                f"{name}: by rank {rank}'s wall clock the steps took {units.seconds(wall_s)}, "
                f"{units.percent(share)} off the sum of their times: the clock was set, or there "
                "were gaps between steps; rates are over the sum"
            )
    return (*notes, *_lost(attempts), *_no_numbers(attempts))


def _off_the_clock(attempt: AttemptSteps) -> tuple[float, float, int]:
    """Return how far wall clock and sum of steps differ (share), that time, and the worst rank.

    Time that the rank recorded between two steps is excluded, and so is the writing of profiles by
    any rank. `without_profile_waits` moved the start of steps that waited for a profile, which
    leaves a gap of at most one step before them: `reach_s` covers it.
    """
    profiles = profile_times(attempt.ranks)
    worst = (0.0, 0.0, 0)
    for index, timing in enumerate(attempt.ranks):
        steps = attempt.measured(index)
        if not len(steps):
            continue
        starts, lengths = steps["start_unix_s"], steps["step_s"]
        reach_s = float(lengths.max())
        wall_s = float(starts[-1] + lengths[-1] - starts[0])
        sum_s = float(lengths.sum(dtype=np.float64))
        if abs(wall_s - sum_s) > CLOCK_TOLERANCE * sum_s:
            gaps = merge(zip((starts + lengths)[:-1].tolist(), starts[1:].tolist(), strict=True))
            spans = [
                (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
                for span in timing.spans
            ]
            explained = merge([*spans, *((start - reach_s, end) for start, end in profiles)])
            wall_s -= total_s(gaps) - total_s(subtract(gaps, explained))
        share = abs(wall_s - sum_s) / sum_s if sum_s else 0.0
        worst = max(worst, (share, wall_s, timing.rank))
    return worst


def _lost(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield steps between two attempts without a record, although the later one continued them."""
    end = None
    for attempt in attempts:
        kept_steps = attempt.kept(attempt.longest)["step"]
        if not len(kept_steps):
            continue
        if end is not None and kept_steps[0] > end:
            yield (
                f"attempt {attempt.attempt}: begins at step {kept_steps[0]:,}, and of the "
                f"{units.number_of('step', int(kept_steps[0]) - end)} before it there are no "
                "records: they are in no rate"
            )
        end = int(kept_steps[-1]) + 1


def _no_numbers(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield a loss that stopped being a number: more such steps than ever before in a row.

    A user's stage may write a loss only in some steps.
    """
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in attempts])
    places = np.flatnonzero(np.isfinite(losses))
    if not len(places):
        return
    at_end = len(losses) - 1 - int(places[-1])
    if at_end > max(0, int(np.diff(places, prepend=-1).max()) - 1):
        yield (
            f"the loss of the last {units.number_of('step', at_end)} is not a number (NaN or "
            "infinite): the reported loss is that of the steps before"
        )
