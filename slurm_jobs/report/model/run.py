"""Content of a report as plain values: made by `numbers`, shown by three renderers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.reconcile import Status
from slurm_jobs.report.model.cost import CostNumbers, Projection
from slurm_jobs.report.model.provenance import ProvenanceNumbers
from slurm_jobs.report.model.statistics import DataStatistics
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.model.values import Quantity, TimeShare

Severity = Literal["high", "medium", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunHeader:
    """User, command and status of the run."""

    run_id: str
    name: str
    title: str
    status: Status
    status_reason: str
    submitted_by: str
    host: str
    scheduler: str
    version: str
    spec_file: str
    created_unix_s: float
    """Time of its first submit, or first start if the submitting machine's clock was ahead."""
    last_unix_s: float
    """End of the last attempt; time of reading if the run is active."""


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
    end_unix_s: float
    outcome: str
    """An outcome of `records.Outcome`, `running`, `cancelled` or `unknown`."""
    reason: str


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
    gpu_hours: Quantity
    cpu_hours: Quantity
    failures: tuple[str, ...]
    """One line for each attempt that failed."""
    results: Mapping[str, float]
    """Numbers that the stage returned; empty for an array."""
    unrecorded_gpu_hours: float = 0.0
    """Part of `gpu_hours` of starts that died before their supervisor could write a record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationNumbers:
    """Evaluation results of one stage."""

    stage: str
    numbers: Mapping[str, float]
    """By name, nested ones joined by a dot; whole numbers stay whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNumbers:
    """Result of preprocessing the manifest."""

    stage: str
    num_slices_reported: int
    num_slices: int
    num_rows: Quantity
    num_samples: Quantity
    num_rejects: Quantity
    num_too_long: Quantity
    num_tokens: Quantity
    mean_tokens: Quantity
    num_shards: Quantity
    num_truncated: Quantity
    rejects: tuple[tuple[str, int], ...]
    """Reason and count, most frequent first. `too_long` and image limits are the config's choice;
    `num_too_long` counts them all."""
    length_counts: tuple[tuple[int, int], ...]
    """Samples by length: upper bound of the bin in tokens (a power of two), and count."""
    work_s: Mapping[str, float]
    """Seconds of decoding and resizing, storing, tokenising and writing, summed over the slices."""
    stored_image: Mapping[str, float]
    """`bytes`, `decode_ms` and, for lossy formats, `psnr_db` of a stored image: means over those
    that each slice read back."""
    statistics: DataStatistics | None
    """Statistics of the whole data set, once `consolidate` has finished it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Recommendation, with its evidence."""

    rule_id: str
    severity: Severity
    title: str
    text: str
    evidence: tuple[str, ...]
    next_knob: str
    ceiling: str
    """Upper bound of the gain."""
    confidence: str = "high: timed in the records"
    """Confidence in the diagnosis, with a reason."""
    cause: str = ""
    """Cause in one word, if a rule distinguishes several; see `findings.base.Cause`."""
    ceiling_times: float | None = None
    """Ceiling as a factor of the speed; None if unknown."""
    rule: str = ""
    """Threshold in words; like the source, its rule adds it to each answer."""
    source: str = ""
    """Source of the threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Result of one rule without a finding."""

    rule_id: str
    outcome: Literal["found", "clear", "abstained"]
    reason: str
    rule: str = ""
    """Threshold in words, as in a finding."""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One of the five numbers at the top."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """Content of the report."""

    header: RunHeader
    verdict: str
    tiles: tuple[Tile, ...]
    timeline: tuple[TimeShare, ...]
    """Every second from submit to end, once."""
    timeline_note: str
    bars: tuple[Bar, ...]
    stages: tuple[StageNumbers, ...]
    training: tuple[TrainingNumbers, ...]
    data: tuple[DataNumbers, ...]
    evaluation: tuple[EvaluationNumbers, ...]
    """One for each stage that evaluated something, in the spec's order."""
    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    """Missing information, with reasons."""
    spec: Mapping[str, Any]
    """Resolved spec, without values that look like secrets."""
    provenance: ProvenanceNumbers
    """Origin of the run, and its machines."""
    cost: CostNumbers
    """Cost of the run."""
    projections: tuple[Projection, ...]
    """Projections of unfinished trainings, and of epochs that were requested."""
