"""The step records of one task, attempt by attempt, with what was done twice marked off: PURE.

Done twice are only steps that the same training did again. A resume with another config may begin
another one: what it did not go on from is abandoned, and called so. A phase with those before it is
one training of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.inputs.records import RankTiming
from slurm_jobs.report.numbers.profiles import without_profile_waits

Members = Sequence[tuple[RankTiming, np.ndarray]]
"""The ranks of an attempt that recorded steps, each with its records."""

Phases = Sequence[tuple[int, str]]
"""First steps of phases, rising from 0, and names of the trainings that their steps are of."""

_NEVER = int(np.iinfo(np.int64).max)
CLOCK_TOLERANCE = 0.01
"""Wall clock and sum of step times may differ by this share. Own choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptSteps:
    """The step records of one attempt, a structured array a rank, fields as in `STEP_FIELDS`."""

    attempt: int
    ranks: tuple[RankTiming, ...]
    records: tuple[np.ndarray, ...]
    """Shape [steps of that rank], all that were recorded."""
    num_kept: tuple[int, ...]
    """How many of each rank's records count: no later attempt did those steps."""
    is_repeated: tuple[np.ndarray, ...]
    """Of each rank's records after those that count (bool): whether a later attempt at the same
    training did that step again. The others only another training did later, if any."""
    warmup_steps: int
    num_ranks: int
    """Of the attempt; more than `ranks` if some left no step."""

    @property
    def num_common(self) -> int:
        """Steps that count and that all of `ranks` recorded: one killed may lack the last."""
        return min(self.num_kept)

    @property
    def num_measured(self) -> int:
        """Steps that count for all ranks, and come after the warm-up."""
        return max(0, self.num_common - self.warmup_steps)

    @property
    def longest(self) -> int:
        """Index of the rank that recorded most: a step that one rank ended, all did."""
        return max(range(len(self.records)), key=lambda index: len(self.records[index]))

    def kept(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that count."""
        return self.records[index][: self.num_kept[index]]

    def abandoned(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that the training after it did not go on from."""
        steps: np.ndarray = self.records[index][self.num_kept[index] :]
        return steps.compress(~self.is_repeated[index])

    def repeated(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that a later attempt at the same training did again."""
        steps: np.ndarray = self.records[index][self.num_kept[index] :]
        return steps.compress(self.is_repeated[index])

    def measured(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that count for all, and come after the warm-up."""
        return self.records[index][self.warmup_steps : self.num_common]

    def measured_s(self) -> float:
        """Time of the measured steps, from the sums of their lengths.

        Steps follow each other without a gap, and a clock that is set back does
        not touch them, as it does the difference between two wall times.
        """
        sums = (self.measured(i)["step_s"].sum(dtype=np.float64) for i in range(len(self.ranks)))
        return float(max(sums))


def last_losses(attempts: Sequence[AttemptSteps]) -> np.ndarray:
    """The finite losses of the last 2 % of the steps that count, of one at least if there is one.

    One step's loss says little.
    """
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in attempts])
    losses = losses[np.isfinite(losses)]
    last: np.ndarray = losses[-max(1, len(losses) // 50) :]
    return last


def split_attempts(
    timings: Sequence[RankTiming], warmup_steps: int, fingerprints: Mapping[int, str]
) -> tuple[AttemptSteps, ...]:
    """The timings of one slice by attempt, with what does not count marked off.

    Args:
        timings: of one slice.
        warmup_steps: at the start of each attempt.
        fingerprints: by attempt, of its config and code; those that are not known count as one.
    """
    by_attempt: dict[int, list[tuple[RankTiming, np.ndarray]]] = {}
    for timing in timings:
        if timing.steps is not None and len(timing.steps.steps):
            by_attempt.setdefault(timing.attempt, []).append((timing, timing.steps.steps))
    by_attempt = {a: without_profile_waits(members) for a, members in by_attempt.items()}
    trainings = _trainings(by_attempt, fingerprints)
    split: list[AttemptSteps] = []
    firsts: dict[str, int] = {}  # of the later attempts, by training
    for attempt in sorted(by_attempt, reverse=True):
        members = sorted(by_attempt[attempt], key=lambda member: member[0].rank)
        records = tuple(steps for _, steps in members)
        kept = [_num_before(steps, min((_NEVER, *firsts.values()))) for steps in records]
        split.append(
            AttemptSteps(
                attempt=attempt,
                ranks=tuple(timing for timing, _ in members),
                records=records,
                num_kept=tuple(kept),
                is_repeated=tuple(
                    _is_repeated(steps[num:], trainings[attempt], firsts)
                    for steps, num in zip(records, kept, strict=True)
                ),
                warmup_steps=warmup_steps,
                num_ranks=max(_num_ranks(members), len(members)),
            )
        )
        for name, first in _firsts(trainings[attempt], _first_step(members)).items():
            firsts[name] = min(firsts.get(name, _NEVER), first)
    return tuple(reversed(split))


def _firsts(phases: Phases, begun: int) -> dict[str, int]:
    """By training, the first step of it that an attempt makes which begins at the step `begun`."""
    ends = [*(start for start, _ in phases[1:]), _NEVER]
    found: dict[str, int] = {}
    for (start, name), end in zip(phases, ends, strict=True):
        if end > begun:
            found.setdefault(name, max(start, begun))
    return found


def _is_repeated(steps: np.ndarray, phases: Phases, firsts: Mapping[str, int]) -> np.ndarray:
    """Of each record (bool), whether a later attempt did the step of the same training again."""
    limits = np.array([firsts.get(name, _NEVER) for _, name in phases])
    own = np.searchsorted([start for start, _ in phases], steps["step"], side="right") - 1
    repeated: np.ndarray = steps["step"] >= limits[own]
    return repeated


def _trainings(
    by_attempt: Mapping[int, Members], fingerprints: Mapping[int, str]
) -> dict[int, Phases]:
    """By attempt, names for the trainings that its steps are of.

    A phase that an attempt begins says itself, with those before it, which training it is; records
    of an older version do not, and are of another one where config or code are. What an attempt
    goes on with is what the attempt before made, whatever config and code are called now.
    """
    found: dict[int, Phases] = {}
    known: dict[str, str] = {}  # by what the writers said, or the fingerprint
    before: Phases = ()
    for attempt in sorted(by_attempt):
        members = by_attempt[attempt]
        begun = _first_step(members)
        phases = []
        for start, name in _said_phases(members, fingerprints.get(attempt, "")):
            if before and start < begun:
                known[name] = _name_at(before, start)
            known.setdefault(name, f"from step {start} of attempt {attempt}")
            phases.append((start, known[name]))
        found[attempt] = before = phases
    return found


def _said_phases(members: Members, fingerprint: str) -> Phases:
    """As the writers said; an older version said it of all phases together, or not at all."""
    files = [timing.steps.metadata for timing, _ in members if timing.steps is not None]
    for said in files:
        phases = said.get("phases") or ()
        if phases and all("training" in phase for phase in phases):
            return [(int(phase["first_step"]), str(phase["training"])) for phase in phases]
    name = next((str(said["training"]) for said in files if said.get("training")), "")
    return [(0, name or fingerprint)]


def _name_at(phases: Phases, step: int) -> str:
    return next(name for start, name in reversed(phases) if start <= step)


def _first_step(members: Members) -> int:
    return min(int(steps["step"][0]) for _, steps in members)


def _num_before(records: np.ndarray, step: int) -> int:
    return int(np.searchsorted(records["step"], step))


def _num_ranks(members: Members) -> int:
    """As the writers said; 0 where they did not."""
    files = (timing.steps for timing, _ in members)
    return max(int(file.metadata.get("num_ranks", 0)) for file in files if file is not None)
