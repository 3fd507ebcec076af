"""Step records of one task, attempt by attempt, with repeated steps marked. PURE.

Only steps that the same training did again are repeated. A resume with another config may begin
another training; the steps that it did not continue are abandoned. A phase together with earlier
ones is one training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.inputs.run_inputs import RankTiming, StageInputs
from slurm_jobs.report.steps.profile_waits import without_profile_waits

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
    fingerprint: str
    """Hash of config and code; empty if unknown."""

    @property
    def is_whole(self) -> bool:
        """True if every rank left records."""
        return len(self.ranks) == self.num_ranks

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

    @property
    def begun_unix_s(self) -> float:
        """When the first step began, on the rank with most records."""
        return float(self.records[self.longest]["start_unix_s"][0])

    @property
    def ended_unix_s(self) -> float:
        """When the last step ended, on the rank with most records."""
        last = self.records[self.longest][-1]
        return float(last["start_unix_s"]) + float(last["step_s"])

    @property
    def uncounted_s(self) -> float:
        """Time of the steps that a later attempt repeated or did not continue."""
        steps = self.records[self.longest][self.num_kept[self.longest] :]
        return float(steps["step_s"].sum(dtype=np.float64))

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


def split_by_slice(
    stage: StageInputs, warmup_steps: int = 0
) -> dict[int, tuple[AttemptSteps, ...]]:
    """Return the attempts of each slice that recorded steps, in the order of the slices."""
    timings: dict[int, list[RankTiming]] = {}
    for timing in stage.timings:
        if timing.steps is not None and len(timing.steps.steps):
            timings.setdefault(timing.slice_index, []).append(timing)
    fingerprints: dict[int, dict[int, str]] = {}
    for record in stage.attempts:
        fingerprints.setdefault(record.slice_index, {})[record.attempt] = record.fingerprint
    return {
        index: split_attempts(timings[index], warmup_steps, fingerprints.get(index, {}))
        for index in sorted(timings)
    }


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
        said_ranks = [int(timing.header.get("num_ranks", 0)) for timing, _ in members]
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
                fingerprint=fingerprints.get(attempt, ""),
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
    headers = [timing.header for timing, _ in members]
    for header in headers:
        phases = header.get("phases") or ()
        if phases and all("training" in phase for phase in phases):
            return [(int(phase["first_step"]), str(phase["training"])) for phase in phases]
    name = next((str(header["training"]) for header in headers if header.get("training")), "")
    return [(0, name or fingerprint)]


def _first_step(members: Members) -> int:
    return min(int(steps["step"][0]) for _, steps in members)
