"""What a report says, as plain values: made by `numbers`, shown by the three renderers."""

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
    """Who ran what, and how it stands."""

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
    """Of its first submit or start, if the clock of the machine that submitted it was ahead."""
    last_unix_s: float
    """When the last attempt ended; when the records were read, if the run goes on."""


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
    """Which one took longest: slice, attempt, node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageNumbers:
    """What became of one stage."""

    name: str
    run: str
    is_former: bool
    """Of an earlier plan: the spec no longer has it."""
    status: Status
    status_reason: str
    num_tasks: int
    """Slices; 1 without an array."""
    slices_per_task: int
    """Most slices that one array task worked through, one after the other."""
    num_completed: int
    num_failed: int
    num_running: int
    num_attempts: int
    num_retries: int
    """Attempts after the first, over all slices."""
    max_running: int
    """Most attempts that ran at the same time."""
    dependency_wait_median_s: Quantity
    """From submit to eligible."""
    queue_wait_median_s: Quantity
    """From eligible to start."""
    queue_wait_max_s: Quantity
    running_s: Quantity
    """Time in which an attempt ran, one or more; what lies between attempts is not in it."""
    task_time: Distribution | None
    requested_cpus: Quantity
    """Of one job or array task, as its newest start asked; so are GPUs, memory and time limit."""
    cpu_efficiency: Quantity
    """Processor time over (allocated CPUs x elapsed time)."""
    requested_gpus: Quantity
    gpu_busy: Quantity
    """Share of the time that any kernel ran, over all readings of its GPUs, start-up included."""
    max_rss_bytes: Quantity
    """Of one task, the most of all."""
    tasks_per_node: int
    node_mem_bytes: Quantity
    """Of all tasks on one node, at most: as if each took as much as the largest."""
    requested_mem_bytes: Quantity
    """For one node, as `mem_gb`."""
    time_limit_s: Quantity
    longest_s: Quantity
    """Longest elapsed time of one job, for comparison with the limit; of one that runs, so far."""
    gpu_hours: Quantity
    cpu_hours: Quantity
    failures: tuple[str, ...]
    """One line for each attempt that failed."""
    results: Mapping[str, float]
    """Numbers that the stage returned; empty for an array."""
    unrecorded_gpu_hours: float = 0.0
    """Of `gpu_hours`, those of starts that died before their supervisor could write a record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationNumbers:
    """What one stage returned of its evaluation."""

    stage: str
    numbers: Mapping[str, float]
    """By name, nested ones joined by a dot; what the stage returned as a whole number is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNumbers:
    """What preprocessing made of the manifest."""

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
    """Reason and count, most frequent first; the config chose `too_long`, and what is over a limit
    of images; `num_too_long` counts them all."""
    length_counts: tuple[tuple[int, int], ...]
    """Samples by length: upper bound of the bin in tokens (a power of two), and count."""
    work_s: Mapping[str, float]
    """Seconds of decoding and resizing, storing, tokenising and writing, summed over the slices."""
    stored_image: Mapping[str, float]
    """`bytes`, `decode_ms` and, where the format loses something, `psnr_db` of an image as it is
    stored: means over those that each slice read back."""
    statistics: DataStatistics | None
    """Of the whole data set, once `consolidate` has finished it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something worth changing, with what supports it."""

    rule_id: str
    severity: Severity
    title: str
    text: str
    evidence: tuple[str, ...]
    next_knob: str
    ceiling: str
    """What the remedy can gain at most."""
    confidence: str = "high: timed in the records"
    """How sure the diagnosis is, and why."""
    cause: str = ""
    """In one word, where a rule tells several causes apart; see `findings.base.Cause`."""
    ceiling_times: float | None = None
    """The ceiling as a number: how many times the speed; None where it is not known."""
    rule: str = ""
    """The threshold, in words; as the source, its rule gives it to each answer."""
    source: str = ""
    """Where the threshold comes from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What became of one rule."""

    rule_id: str
    outcome: Literal["found", "clear", "abstained"]
    reason: str
    rule: str = ""
    """The threshold, in words, as of a finding."""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One of the five numbers at the top."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """Everything that the report says."""

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
    """What is missing, and why."""
    spec: Mapping[str, Any]
    """The resolved spec, without the values of what looks like a secret."""
    provenance: ProvenanceNumbers
    """Where the run came from, and what it ran on."""
    cost: CostNumbers
    """What it took of the cluster."""
    projections: tuple[Projection, ...]
    """What is to come: of trainings that are not done, and of epochs that were asked for."""
