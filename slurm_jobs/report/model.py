"""What a report says, as plain values: made by `numbers`, shown by the three renderers.

A number that could not be had is a `Quantity` with the reason; never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.reconcile import Status

Severity = Literal["high", "medium", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A number with its unit, or the reason why there is none."""

    value: float | None
    unit: str
    missing: str = ""
    """Why there is no value; empty if there is one."""


def known(value: float, unit: str) -> Quantity:
    """A quantity that was measured."""
    return Quantity(value=float(value), unit=unit)


def missing(unit: str, reason: str) -> Quantity:
    """A quantity that could not be had."""
    return Quantity(value=None, unit=unit, missing=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeShare:
    """One part of a time budget; the parts of a budget add up to 100 %."""

    name: str
    kind: str
    """What colours it: a step phase, `queue`, `running`, `unexplained` ..."""
    seconds: float
    share: float
    """Fraction of the whole budget, 0 to 1."""


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
    status: Status
    status_reason: str
    num_tasks: int
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
    wall_s: Quantity
    """From the first start to the last end."""
    task_time: Distribution | None
    cpu_efficiency: Quantity
    """Processor time over (allocated CPUs x elapsed time)."""
    max_rss_bytes: Quantity
    requested_mem_bytes: Quantity
    time_limit_s: Quantity
    longest_s: Quantity
    """Longest elapsed time of one job, for comparison with the limit."""
    gpu_hours: Quantity
    cpu_hours: Quantity
    failures: tuple[str, ...]
    """One line for each attempt that failed."""
    results: Mapping[str, float]
    """Numbers that the stage returned; empty for an array."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNumbers:
    """One rank's share of the training."""

    rank: int
    node: str
    step_mean_s: float
    step_p95_s: float
    phases_s: Mapping[str, float]
    """Mean seconds a step by step phase; adds up to `step_mean_s`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """The rank that the others wait for, if any."""

    rank: int
    node: str
    slowest_over_mean: float
    """Mean step time of the slowest rank over the mean of all."""
    data_rank: int
    data_node: str
    data_excess_s: float
    """How much longer than the mean rank `data_rank` waits for its data, seconds a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Downsampled series over the optimizer steps; all of the same length."""

    step: tuple[float, ...]
    loss: tuple[float, ...]
    tokens_per_s: tuple[float, ...]
    step_p50_s: tuple[float, ...]
    step_p95_s: tuple[float, ...]
    step_max_s: tuple[float, ...]
    data_wait_share: tuple[float, ...]
    resumed_at: tuple[int, ...]
    """First step of each attempt but the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNumbers:
    """What the step records of one stage amount to."""

    stage: str
    num_ranks: int
    num_attempts: int
    num_steps: int
    """Repeated ones count once."""
    num_measured: int
    """Steps left after the warm-up of each attempt."""
    warmup_steps: int
    too_few: str
    """Why no judgement is made; empty if there are enough steps."""
    phases: tuple[TimeShare, ...]
    """Seconds of a mean step, over all ranks."""
    ranks: tuple[RankNumbers, ...]
    step_median_s: Quantity
    step_p95_s: Quantity
    steps_per_s: Quantity
    samples_per_s: Quantity
    tokens_per_s: Quantity
    padding_share: Quantity
    num_tokens: Quantity
    num_samples: Quantity
    first_loss: Quantity
    last_loss: Quantity
    memory_peak_bytes: Quantity
    num_allocator_retries: int
    """Over all ranks and attempts; each counts from its own start."""
    straggler: Straggler | None
    num_repeated_steps: int
    repeated_s: float
    """Wall seconds spent on steps that a later attempt did again."""
    budget: tuple[TimeShare, ...]
    """Rank 0 from the start of each attempt to its end: start-up, steps, the rest."""
    curves: Curves | None
    notes: tuple[str, ...] = ()


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
    """Reason and count, most frequent first; `too_long` is the one that the config chose."""
    length_counts: tuple[tuple[int, int], ...]
    """Samples by length: upper bound of the bin in tokens (a power of two), and count."""
    work_s: Mapping[str, float]
    """Seconds of decoding, tokenising and writing, summed over the slices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something worth changing, with what supports it."""

    rule_id: str
    severity: Severity
    title: str
    text: str
    evidence: tuple[str, ...]
    rule: str
    """The threshold, in words."""
    source: str
    """Where the threshold comes from."""
    next_knob: str
    ceiling: str
    """What the remedy can gain at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What became of one rule."""

    rule_id: str
    outcome: Literal["found", "clear", "abstained"]
    reason: str


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
    evaluation: Mapping[str, float]
    """Numbers of the last evaluation, as the training stage returned them."""
    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    """What is missing, and why."""
    spec: Mapping[str, Any]
    """The resolved spec."""
