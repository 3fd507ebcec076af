"""Status of a run and of its stages, as values. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.schedulers.job_states import Wait
from slurm_jobs.schedulers.protocol import Doubt
from slurm_jobs.status.slice_status import SliceStatus, Status

DECIDING_FIRST: tuple[Status, ...] = (
    "running",
    "waiting",
    "failed",
    "unknown",
    "cancelled",
    "stranded",
)
"""Precedence: a run has the first of these statuses that one of its stages has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """Status of one stage."""

    stage: StageSummary
    status: Status
    slices: tuple[SliceStatus, ...]
    reason: str = ""
    wait: Wait = ""
    """Kind of the wait that `reason` describes; empty for other reasons."""
    is_not_needed: bool = False
    """True if it can never start because the event that it handles did not happen."""
    stuck: Slices = frozenset()
    """Slices whose jobs stay in the queue, because they are held, over a limit, of earlier versions
    (`unmet`), or depend on such jobs. What depends on them does not start, whatever the kind."""

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of slices by status."""
        return Counter(s.status for s in self.slices)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the slices that have the stage's status."""
        names = {s.source for s in self.slices if s.status == self.status}
        return tuple(sorted(names or {s.source for s in self.slices}))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """Status of a run."""

    status: Status
    stages: tuple[StageStatus, ...]
    problems: tuple[str, ...] = ()
    """Sources that could not be queried."""
    notes: tuple[str, ...] = ()
    """Information that this cluster can never give, and jobs that only the accounting has alive."""
    asked_unix_s: float | None = None
    """Time of the scheduler query; None if nothing had to be queried."""
    knows_the_living: bool = True
    """True if every job that is not reported alive has certainly ended."""
    doubts: Mapping[JobKey, Doubt] = field(default_factory=dict)
    """Jobs of which it is open whether they live, see `Answer`."""

    def stage(self, name: str) -> StageStatus:
        """Return the stage of that name.

        Raises:
            KeyError: there is none.
        """
        return {stage.stage.name: stage for stage in self.stages}[name]

    def query_time_of(self, sources: Iterable[str]) -> float | None:
        """Return the time of the oldest query of these sources; None for files of the run."""
        asked = {"squeue", "scontrol", "sacct", "local"}
        return self.asked_unix_s if asked.intersection(sources) else None
