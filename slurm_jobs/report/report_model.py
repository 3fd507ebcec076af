"""Values that a report consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slurm_jobs.nodes.probe_records import SlowMeasure
from slurm_jobs.report.attempt_model import StageAttempts
from slurm_jobs.report.cost_model import CostNumbers, Projection
from slurm_jobs.report.data_statistics import DataStatistics
from slurm_jobs.report.efficiency_model import StageEfficiency
from slurm_jobs.report.profile_trace import Occupancy
from slurm_jobs.shared.files import plain_json
from slurm_jobs.shared.node_records import NodeProbe
from slurm_jobs.shared.units import Quantity, TimeShare
from slurm_jobs.status import Status

# Provenance of a run and its nodes as plain values.


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionFacts:
    """Origin of one submit or resume; empty and None if unknown."""

    number: int
    """Number of its plan, counted from 1."""
    recorded_unix_s: float
    command: tuple[str, ...]
    host: str
    slurm_jobs_version: str
    slurm_version: str
    """Empty without Slurm."""
    commit: str | None
    branch: str | None
    remotes: Mapping[str, str]
    is_dirty: bool | None
    num_changed: int
    num_untracked: int
    diff_bytes: int
    """Size of the diff in the run folder, which no report shows."""
    diff_is_cut: bool
    git_problems: tuple[str, ...]
    python: PythonFacts
    """Python of the login node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonFacts:
    """Python with those of its packages that matter to a result."""

    executable: str
    version: str
    packages: Mapping[str, str]
    """Version by name, in the order of `PACKAGES_THAT_MATTER`; the run folder has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """Records of one node."""

    node_name: str
    cpu: str
    num_cores: int
    """Logical cores of the whole node."""
    memory_bytes: int | None
    gpus: tuple[str, ...]
    """Type of each visible GPU."""
    drivers: tuple[str, ...]
    """Version of the GPU driver; more than one if they differ."""
    gpu_problem: str
    """Reason why nvidia-smi gave no answer; empty if it did, or is missing."""
    system: str
    """Distribution and kernel."""
    modules: tuple[str, ...]
    python: str
    """Fingerprint of the Python that the ranks ran in."""
    host_name: str = ""
    """Host name of the node; it identifies machines under the local scheduler."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKind:
    """Equal nodes of a stage."""

    stage: str
    node_names: tuple[str, ...]
    cpu: str
    num_cores: int
    memory_bytes: int | None
    gpus: tuple[tuple[str, int], ...]
    """Type, and how many of it each node has."""
    drivers: tuple[str, ...]
    gpu_problem: str
    system: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePython:
    """Python with its modules, and the stages whose ranks ran in it."""

    stages: tuple[str, ...]
    python: PythonFacts
    modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceNumbers:
    """Origin of the run, and its machines."""

    submissions: tuple[SubmissionFacts, ...]
    """Oldest first; empty if an older version made the run."""
    nodes: tuple[NodeKind, ...]
    pythons: tuple[StagePython, ...]
    probes: tuple[NodeProbe, ...] = ()
    """Newest probe of each node that an attempt had; empty without probes."""


PACKAGES_THAT_MATTER = (
    "slurm-jobs",
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "peft",
    "bitsandbytes",
    "flash-attn",
    "xformers",
    "deepspeed",
    "triton",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "tokenizers",
    "safetensors",
    "datasets",
    "webdataset",
    "pillow",
    "pyarrow",
    "numpy",
    "submitit",
)


# Load of nodes during the steps of a training as plain values.


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """Reading over the time of the steps, weighted by duration."""

    mean: float
    p5: float
    p95: float
    num: int
    """Number of readings; each of several GPUs counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoad:
    """One node during the measured steps of a training; None for what no reading has."""

    node: str
    num_readings: int
    num_cores: int
    """Number of cores that the job may use."""
    num_cores_asked: int
    """Number of requested cores, within `num_cores`; equal to it if the spec has no number."""
    num_ranks: int
    """Number of ranks on the node."""
    cpu_busy: Level | None
    """Share of those cores, all processes."""
    cpu_iowait: Level | None
    """Share of those cores, idle with a disk request outstanding."""
    job_cpu_cores: Level | None
    """Cores kept busy by the job's processes."""
    other_cores: Level | None
    """Cores of the job kept busy by others, per reading. A reading may be below 0, because it
    combines two clocks."""
    num_cores_unasked: float
    """Cores that the job may use but did not request, the mean over its attempts."""
    disk_read: Level | None
    """Bytes per second, all disks of the node."""
    network_receive: Level | None
    """Bytes per second, InfiniBand included."""
    link_bytes_per_s: float | None
    """Sum over its links that are up and report their speed."""
    gpu_names: tuple[str, ...]
    """Name of each GPU that was read."""
    gpu_busy: Level | None
    """Share of the time that any kernel ran, over all its GPUs and readings."""
    gpu_memory_peak_bytes: float | None
    """Memory use of the fullest GPU, by all processes."""
    gpu_memory_bytes: float | None
    """Memory of the smallest GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderLoad:
    """Activity of the loader's threads of one rank, for a mean measured step."""

    rank: int
    node: str
    num_threads: int | None
    """Number in the newest config of a `run: train`; None for streamed shards, too."""
    work_s: float
    """Thread seconds for a step's microbatches, summed over threads."""
    cpu_s: float
    """Part of it spent computing."""
    core_wait_s: float | None
    """Part of it ready to compute while others had the cores; None if the kernel does not report
    it."""
    step_s: float
    data_wait_s: float
    read_blocked_s: float | None = None
    """Part of `work_s` blocked in the one thread that reads for all others; None if each reads."""

    @property
    def blocked_s(self) -> float:
        """Rest of `work_s`: waiting for storage or a lock, or for a core if not reported."""
        return max(0.0, self.work_s - self.cpu_s - (self.core_wait_s or 0.0))

    @property
    def busy_share(self) -> float | None:
        """Share of all threads' time in which they were working on a microbatch."""
        if not self.num_threads or self.step_s <= 0:
            return None
        return self.work_s / (self.num_threads * self.step_s)


# Probes of the nodes of a training as plain values.


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedNode:
    """One node of a training, with its newest probe compared to similar nodes."""

    node: str
    measured_unix_s: float
    days_apart: float
    """Time between the probe and the training; 0 during the training."""
    other_busy_cores: float | None
    """Cores kept busy by others during the probe; None if negligible."""
    num_compared: int
    """Number of other probed nodes with the same hardware."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first; empty if it is not slow, or there are too few nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbes:
    """Nodes of one training, and their probes."""

    nodes: tuple[str, ...]
    """All of them, probed or not."""
    probed: tuple[ProbedNode, ...]
    command: str
    """Command that probes and compares them; empty if no command helps."""


# Numbers of one training as plain values.


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNumbers:
    """Means of one rank on one node; a rank that ran on several nodes has several."""

    rank: int
    node: str
    num_steps: int
    """Measured steps of the means."""
    attempts: tuple[int, ...]
    """Attempts in which it made them, ascending."""
    step_mean_s: float
    step_p95_s: float
    own_mean_s: float
    """Part of the mean step without timed waits for other ranks."""
    own_excess_s: float | None
    """Excess of own work per step over the mean of all ranks in the same attempts; None if none of
    these has the records of all its ranks."""
    data_excess_s: float | None
    """Excess of the wait for data."""
    core_wait_mean_s: float | None
    """Part of the mean step in which the training thread was ready while others had the cores; None
    if the records lack it."""
    phases_s: Mapping[str, float]
    """Mean seconds per step by step phase; adds up to `step_mean_s`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """Rank with the most work, and the rank that waits longest for its data.

    The steps of all ranks take the same time, because they wait for each other:
    they differ in their own work, the step without those waits. Each
    is compared with the mean of its own attempt; the numbers are over the steps
    of all attempts that have the records of all their ranks.
    """

    rank: int
    node: str
    """Nodes where it was slow, joined by commas and `and`."""
    slowest_over_mean: float | None
    """Own work of the slowest rank where it was slow, and of the mean rank elsewhere, over that of
    the mean rank throughout. A lower bound, because waits inside forward and backward are not timed
    separately; None if no waits are."""
    phase: str
    """Step phase in which `rank` exceeds the mean rank most."""
    phase_excess_s: float
    """Excess in that phase, seconds per step."""
    data_rank: int
    data_node: str
    data_excess_s: float
    """Excess of `data_rank`'s wait for data over the mean rank, seconds per step."""
    step_mean_s: float
    """Mean step that contains these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FarRank:
    """Rank without a core near its GPU."""

    rank: int
    node: str
    cores: str
    """Cores that it may use, in Slurm's form: `0-15`."""
    near_cores: str
    """Cores of its GPU's NUMA node."""
    others_are_near: bool
    """True if other ranks have cores there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Downsampled series over the optimizer steps; all of the same length."""

    step: tuple[float, ...]
    loss: tuple[float, ...]
    """Mean over the steps of each point."""
    tokens_per_s: tuple[float, ...]
    step_p50_s: tuple[float, ...]
    step_p95_s: tuple[float, ...]
    step_max_s: tuple[float, ...]
    data_wait_share: tuple[float, ...]
    resumed_at: tuple[int, ...]
    """First step of each attempt but the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCountRates:
    """Rates of the measured steps that so many ranks made together."""

    num_ranks: int
    num_steps: int
    step_median_s: Quantity
    steps_per_s: Quantity
    tokens_per_s: Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class ExposedCommunication:
    """Communication without concurrent computation, on the rank with the most of it."""

    rank: int
    attempt: int
    num_steps: int
    """Number of profiled steps."""
    share: float
    """Share of the profiled steps."""
    communication_share: float
    """Share with at least one collective under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Time of a step from start to start, from stretches of the run."""

    num_ranks: int
    """Ranks of the newest attempt; the pace is of attempts with the same number."""
    step_s: float
    """Mean over the stretches, including checkpoints and evaluation in the loop."""
    spread_s: float
    """Standard deviation of the stretches' means."""
    num_steps: int
    """Steps in the stretches."""
    num_stretches: int
    samples_per_step: float
    """Sum over all ranks."""
    num_planned: int | None
    """Steps of the whole training; None if the records lack it."""
    num_done: int
    """Steps finished by the newest attempt, including those without records."""
    num_saved: int
    """Steps in the newest checkpoint, as far as recorded."""
    num_phases: int
    is_last_phase: bool
    """False if phases with an unknown pace follow."""
    attempt: int = 0
    """Newest attempt with steps; 0 if unknown."""
    warmup_s: float = 0.0
    """Extra time of a start's warm-up steps, including compilation: the median over the attempts.
    """
    num_loaded: int | None = None
    """Steps in the checkpoint from which a later start without a step continued."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNumbers:
    """Numbers from the step records of one stage."""

    stage: str
    num_ranks: int
    """Ranks of the largest attempt."""
    rank_counts: tuple[int, ...]
    """Ranks of the attempts whose steps count, in order, without repetitions."""
    rates_by_ranks: tuple[RankCountRates, ...]
    """Rates by number of ranks, if attempts differ; otherwise empty: all other rates have that
    number."""
    num_attempts: int
    num_steps: int
    """Repeated ones count once."""
    num_measured: int
    """Steps after the warm-up of each attempt."""
    warmup_steps: int
    too_few: str
    """Reason why no judgement is made; empty if there are enough steps."""
    phases: tuple[TimeShare, ...]
    """Seconds of a mean step, over all ranks."""
    critical_shares: Mapping[str, float]
    """Upper bound, by step phase and for `padding`, of the share of the steps' time on the critical
    path. In each step that is the time of the rank that spends most on it. Empty if no attempt has
    the records of all its ranks."""
    meeting_share: float | None
    """Share of the steps' time that the exchanges between the passes cost themselves, a part of the
    waits for other ranks. None if unknown."""
    meetings_apart: bool
    """True if each of the two exchanges is timed; older records combine them."""
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
    """Loss of the first step that counts."""
    last_loss: Quantity
    """Mean over the last `num_last_losses` steps: one step's loss says little."""
    num_last_losses: int
    memory_peak_bytes: Quantity
    num_allocator_retries: int
    """Sum over ranks and attempts; each counts from its start."""
    straggler: Straggler | None
    num_repeated_steps: int
    repeated_s: float
    """Wall seconds spent on steps that a later attempt repeated."""
    num_abandoned_steps: int
    """Steps of an earlier config or code that no later attempt continued: not repeated."""
    abandoned_s: float
    budget: tuple[TimeShare, ...]
    """Rank 0 from the start of each attempt to its end: start-up, steps, the rest."""
    curves: Curves | None
    notes: tuple[str, ...] = ()
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """`mode`, `every_min` and `every_steps` in the spec; empty if it has none."""
    saves_ahead: bool = True
    """True if the state was saved before the last step of an attempt, or of a phase."""
    has_device_times: bool = False
    """True if steps have device times in addition to the host's."""
    device_timeline: tuple[TimeShare, ...] = ()
    """Mean step by the device's clock; empty if it was not read. Never added to host time."""
    loads: tuple[NodeLoad, ...] = ()
    """Load of its nodes during the measured steps; empty without readings."""
    loader: LoaderLoad | None = None
    """Loader of the rank that waits longest for its data; None if not recorded."""
    probes: NodeProbes | None = None
    """Probes of its nodes, each compared with similar ones."""
    memory_capacity_bytes: float | None = None
    """Memory of the smallest GPU; None without readings."""
    exposed: ExposedCommunication | None = None
    """None if no rank of the newest profiled attempt recorded it."""
    profiled: Occupancy | None = None
    """Device activity in the profiled steps; None without a profile."""
    far_ranks: tuple[FarRank, ...] | None = None
    """Ranks of the newest attempt far from their GPU; None if not recorded."""
    device: str = ""
    """`cuda`, `cpu`; empty if not recorded."""
    num_loader_threads: int | None = None
    """Number for each rank in the newest config of a `run: train`."""
    num_microbatches: int = 1
    """Usual number per step on each rank."""
    activation_checkpointing: bool = False
    """Value in the newest config of a `run: train`."""
    pace: Pace | None = None
    """None if there are too few steps."""
    start_s: float = 0.0
    """Time of a start before its first step and after its last: the median over attempts with
    steps, without unexplained time after their steps."""
    is_earlier: bool = False
    """True if all steps are of an earlier config, code or plan than the newest job's: their time
    counts, their loss is no result."""


# Content of a report as plain values: made by `numbers`, shown by three renderers.


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
    num_text_samples: Quantity
    """Samples without a picture."""
    is_text_meant: bool
    """True if `text_only` of the stage that consolidates the samples, or else of this one, is."""
    row_notes: tuple[tuple[str, int], ...]
    """Kind of a note on rows (`RowNote`), and the number of its samples, most frequent first."""
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

    rule_id: str = ""
    """Name of the rule and stage, `padding:train`; its rule adds it to each answer."""
    severity: Severity = "medium"
    title: str
    text: str
    evidence: tuple[str, ...]
    next_knob: str
    ceiling: str
    """Upper bound of the gain."""
    confidence: str = "high: timed in the records"
    """Confidence in the diagnosis, with a reason."""
    cause: str = ""
    """Cause in one word, if a rule distinguishes several; see `Cause` of `loader_threads`."""
    ceiling_times: float | None = None
    """Ceiling as a factor of the speed; None if unknown."""
    rule: str = ""
    """Threshold in words; like the source, its rule adds it to each answer."""
    source: str = ""
    """Source of the threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Result of one rule without a finding."""

    rule_id: str = ""
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
    attempts: tuple[StageAttempts, ...]
    """Attempts of each stage that has any to explain."""
    efficiency: tuple[StageEfficiency, ...]
    """Of each stage that has started."""
    projections: tuple[Projection, ...]
    """Projections of unfinished trainings, and of epochs that were requested."""


# Report as JSON values.


FORMAT_NAME = "slurm-jobs-report-1"


def report_to_json(report: RunReport) -> dict[str, Any]:
    """Return all fields of the report by name; NaN and infinity, which JSON lacks, become null."""
    values: dict[str, Any] = plain_json(dataclasses.asdict(report))
    return {"format": FORMAT_NAME, **values}
