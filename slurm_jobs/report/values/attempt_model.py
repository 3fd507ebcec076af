"""Attempts of a stage as plain values, with the time that their ends have cost. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.run.attempt_history import AttemptEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoss:
    """Lost time of the attempts at some slices, of each slice's whole time."""

    startup_again_s: float
    """Before the first step of attempts that continued earlier ones."""
    repeated_s: float
    """Work that was done again, or has to be."""
    requeue_wait_s: float
    """In the queue, between two attempts of one job."""
    whole_s: float
    """All attempts, and these waits."""

    @property
    def seconds(self) -> float:
        """Return the sum of the parts."""
        return self.startup_again_s + self.repeated_s + self.requeue_wait_s

    @property
    def share(self) -> float:
        """Return the share of the whole time."""
        return self.seconds / self.whole_s if self.whole_s > 0 else 0.0

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Return name and seconds of the parts that have any time, the largest first."""
        parts = [
            ("start-up again", self.startup_again_s),
            ("repeated work", self.repeated_s),
            ("requeue wait", self.requeue_wait_s),
        ]
        return sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class StageAttempts:
    """Attempts of one stage, at the slices that were tried again or are not complete."""

    stage: str
    entries: tuple[AttemptEntry, ...]
    """By slice and start."""
    num_slices: int
    """Slices of the stage."""
    num_explained: int
    """Slices that `entries` are about; all others completed at the first attempt, run or wait."""
    lost: StageLoss
    """Over all slices."""
