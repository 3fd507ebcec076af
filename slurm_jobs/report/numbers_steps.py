"""The step records of one task, attempt by attempt, with what was done twice marked off: PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.inputs import RankTiming


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptSteps:
    """The step records of one attempt, a structured array a rank, fields as in `STEP_FIELDS`."""

    attempt: int
    ranks: tuple[RankTiming, ...]
    records: tuple[np.ndarray, ...]
    """Shape [steps of that rank], all that were recorded."""
    num_kept: tuple[int, ...]
    """How many of each rank's records no later attempt did again."""
    warmup_steps: int

    def kept(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that count."""
        return self.records[index][: self.num_kept[index]]

    def measured(self, index: int) -> np.ndarray:
        """Records of the rank at `index` that count and come after the warm-up."""
        return self.records[index][self.warmup_steps : self.num_kept[index]]


def split_attempts(timings: Sequence[RankTiming], warmup_steps: int) -> tuple[AttemptSteps, ...]:
    """The timings of one slice by attempt, with what a later attempt repeated marked off."""
    by_attempt: dict[int, list[tuple[RankTiming, np.ndarray]]] = {}
    for timing in timings:
        if timing.steps is not None and len(timing.steps.steps):
            by_attempt.setdefault(timing.attempt, []).append((timing, timing.steps.steps))
    split: list[AttemptSteps] = []
    limit = np.iinfo(np.int64).max
    for attempt in sorted(by_attempt, reverse=True):
        members = sorted(by_attempt[attempt], key=lambda member: member[0].rank)
        records = tuple(steps for _, steps in members)
        split.append(
            AttemptSteps(
                attempt=attempt,
                ranks=tuple(timing for timing, _ in members),
                records=records,
                num_kept=tuple(int(np.searchsorted(r["step"], limit)) for r in records),
                warmup_steps=warmup_steps,
            )
        )
        limit = min(limit, *(int(r["step"][0]) for r in records))
    return tuple(reversed(split))
