"""Stages and jobs of a plan, and the work that is done, as values. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.plan.stage_dependencies import Dependency, Slices
from slurm_jobs.run_folder.orders import StageWork, array_indices


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceRequest:
    """Part of the request of some slices that differs from the request of their stage."""

    gpu_kept: str = ""
    """Type of GPU that they are bound to; empty for any."""
    mem_gb: float | None = None
    """Memory; None for the stage's."""
    timeout_min: float | None = None
    """Time limit of one slice; None for the stage's."""

    def applied_to(self, resources: JobResources) -> JobResources:
        """Return the resources of a stage with this request's values."""
        return replace(
            resources,
            gpu_kept=self.gpu_kept,
            mem_gb=resources.mem_gb if self.mem_gb is None else self.mem_gb,
            timeout_min=resources.timeout_min if self.timeout_min is None else self.timeout_min,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStage(StageWork):
    """Stage as the jobs see it, including stages that do not run in this plan."""

    name: str
    origin: str
    """Name in the file, for a combination of a matrix; otherwise empty."""
    fields: Mapping[str, str]
    """Hash of each value in the fingerprint, by key (`config.url`); values may be secrets."""
    slices_per_task: int
    """Number in the spec; a plan may pack more."""
    after: tuple[Dependency, ...]
    python: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """Job to submit."""

    stage: str
    slices: tuple[int, ...]
    """Ascending; (0,) for a stage without an array."""
    slices_per_task: int | None = None
    """Set for an array whose elements process several slices (`slurm_jobs.run_folder.orders`)."""
    resources: JobResources
    max_running: int | None
    after_active: bool = False
    """Wait for active jobs of the same stage: together they would exceed `max_running`."""
    after_previous: bool = False
    """Wait for the previous job of the same stage, for the same reason."""
    why: str
    """Reason in one line, for `plan` and `resume`."""

    @property
    def num_tasks(self) -> int:
        """Number of array elements; 1 without an array."""
        return len(array_indices(self.slices, self.slices_per_task))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Stages in order, and the jobs to submit, in order."""

    name: str
    stages: tuple[PlannedStage, ...]
    jobs: tuple[PlannedJob, ...]

    def stage(self, name: str) -> PlannedStage:
        """Return the stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Work that need not be submitted."""

    completed: Mapping[str, Slices] = field(default_factory=dict)
    """Slices with output and completion record, by stage."""
    active: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that are queued or running and may stay so, by stage."""
    num_running: Mapping[str, int] = field(default_factory=dict)
    """Largest number of array tasks of the active work that may run at once, by stage. Several
    slices of one task count once, and an array counts at most its throttle."""
    why_not: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Reason why a slice runs again although it was complete, by stage and slice."""
