"""Numbers and attempts of a stage as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.base.quantities import Quantity
from slurm_jobs.status.slice_status import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One attempt on the timeline, all times in seconds since 1970."""

    stage: str
    slice_index: int
    attempt: int
    job_id: str
    node: str
    eligible_unix_s: float | None
    start_unix_s: float
    """Start of the attempt's supervisor; of a start without a record, that of the job."""
    end_unix_s: float
    outcome: str
    """An outcome of `records.Outcome`, `running`, `cancelled` or `unknown`."""
    reason: str
    job_start_unix_s: float | None = None
    """When Slurm started the job, for the first attempt in a start: the time from then on is its
    start-up. None if the accounting lacks it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Spread of the times of a stage's completed attempts, seconds."""

    num: int
    min_s: float
    median_s: float
    mean_s: float
    p95_s: float
    max_s: float
    slowest: str
    """Longest attempt: slice, attempt, node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageNumbers:
    """Numbers of one stage."""

    name: str
    run: str
    is_former: bool
    """True for a stage of an earlier plan that the spec no longer has."""
    status: Status
    status_reason: str
    num_tasks: int
    """Slices; 1 without an array."""
    slices_per_task: int
    """Maximum number of slices that one array task processed in turn."""
    slices: Mapping[Status, str]
    """Slices by status, as Slurm writes them: `{"completed": "0-34,36", "failed": "35"}`."""
    num_completed: int
    num_failed: int
    num_running: int
    num_attempts: int
    num_retries: int
    """Attempts after the first, over all slices."""
    max_running: int
    """Maximum number of attempts that ran at the same time."""
    dependency_wait_median_s: Quantity
    """From submit to eligible."""
    queue_wait_median_s: Quantity
    """From eligible to start."""
    queue_wait_max_s: Quantity
    running_s: Quantity
    """Time in which at least one attempt ran, without gaps between attempts."""
    task_time: Distribution | None
    requested_cpus: Quantity
    """CPUs of one job or array task in its newest request, as are GPUs, memory and time limit."""
    cpu_efficiency: Quantity
    """Processor time over (allocated CPUs x elapsed time)."""
    requested_gpus: Quantity
    gpu_busy: Quantity
    """Share of the time that any kernel ran, over all readings of its GPUs, start-up included."""
    max_rss_bytes: Quantity
    """Maximum over all tasks."""
    tasks_per_node: int
    node_mem_bytes: Quantity
    """Upper bound for all tasks on one node: each counts as much as the largest."""
    requested_mem_bytes: Quantity
    """For one node, as `mem_gb`."""
    time_limit_s: Quantity
    longest_s: Quantity
    """Longest elapsed time of one job, to compare with the limit; of a running job, so far."""
    longest_job: str
    """What that job's time consists of; empty if it is not known."""
    gpu_hours: Quantity
    cpu_hours: Quantity
    failures: tuple[str, ...]
    """One line for each attempt that failed."""
    results: Mapping[str, float]
    """Numbers that the stage returned; empty for an array."""
    is_largest_killed: bool = False
    """True if the task with `max_rss_bytes` was killed at its memory limit, so it needs more."""
    unrecorded_gpu_hours: float = 0.0
    """Part of `gpu_hours` of starts that died before their supervisor could write a record."""

    @property
    def stage(self) -> str:
        """Its name, as in the numbers of trainings and data."""
        return self.name
