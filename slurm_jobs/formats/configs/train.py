"""Config of the built-in `train` stage; its parts have modules of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from slurm_jobs.formats.config import (
    Bounds,
    CheckedConfig,
    Count,
    CountOrZero,
    InputPath,
    NamedPath,
    Positive,
)
from slurm_jobs.formats.configs.model_parts import AdaptersConfig, ModelConfig, QuantizeConfig
from slurm_jobs.formats.configs.stages import (
    Columns,
    ManifestEntry,
    ManifestList,
    entries_of,
    list_problems,
)
from slurm_jobs.formats.configs.train_conflicts import train_problems
from slurm_jobs.formats.configs.training_parts import (
    DEFAULT_NUM_LANES,
    AccelerateConfig,
    AugmentConfig,
    BatchingConfig,
    CheckpointConfig,
    CompileConfig,
    OptimizerConfig,
    ProfileConfig,
    SamplerConfig,
    ScalerConfig,
    ScheduleConfig,
    ShardingConfig,
    StagingConfig,
    StreamConfig,
    TrackersConfig,
)
from slurm_jobs.formats.configs.training_phases import LevelConfig, PhaseConfig

_NUM_ANSWERS = 16
NO_EVALUATION = "`evaluate: {manifest: null, held_out: false}`"
"""Setting that disables evaluation, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig(CheckedConfig):
    """Held-out samples: answered after the last step, their loss measured during training."""

    manifest: ManifestList | InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`. By default those that `held_out` of
    `preprocess` keeps apart, if there are some; with phases, in the data set of the last one.
    Prompts and limits are those of the data set's preprocessing. Of a list of manifests the results
    are also given for each."""
    held_out: bool = True
    """Evaluate on the rows that `preprocess` holds out, if no manifest is given."""
    columns: Columns | None = None
    """Columns of that manifest; by default those of `preprocess`."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; by default the manifest's own folder."""
    images_within: NamedPath | None = None
    """Folder in or below which its images may be, in addition to `image_root`."""
    num_samples: Count | None = None
    """Number of rows to take from the start; null takes all."""
    every_steps: Count | None = None
    """Steps between two measurements of the held-out loss, counted through all phases. One more
    measurement follows the last step of each phase. Null disables them."""
    num_loss_samples: Count = 64
    """Rows of such a measurement, from the start of the manifest."""
    num_answers: CountOrZero = _NUM_ANSWERS
    """Number of these rows that are also answered and compared."""
    max_new_tokens: Count = 64
    """Longest answer in tokens."""
    batch_size: Count = 32
    """Samples that one rank generates at a time."""

    @property
    def manifests(self) -> tuple[ManifestEntry, ...]:
        """Return all manifests; none if evaluation is disabled."""
        return () if self.manifest is None else entries_of(self.manifest)

    def is_evaluation_due(self, step: int, *, ends_phase: bool) -> bool:
        """Return whether a measurement comes after `step` steps of all phases."""
        return self.every_steps is not None and (ends_phase or step % self.every_steps == 0)

    def problems(self) -> Iterator[str]:
        """Yield problems of the manifests, and of measurements without enough rows."""
        if self.manifest is not None:
            yield from list_problems(self.manifest)
        for number, entry in enumerate(self.manifests):
            for key in entry.keys:
                yield (
                    f"manifest.{number}.{key} has no effect, because each held-out row is used "
                    "once: leave it out"
                )
        if self.every_steps is not None and self.manifest is None and not self.held_out:
            yield (
                f"every_steps is {self.every_steps}, manifest is not given and held_out is false: "
                "give the held-out rows, or leave every_steps out"
            )
        most = self.num_loss_samples
        if self.num_answers <= most:
            return
        if self.num_answers == _NUM_ANSWERS:  # probably left out
            yield (
                f"num_loss_samples is {most}, fewer than num_answers, which is {_NUM_ANSWERS} by "
                f"default: give num_answers, too: {most} or less"
            )
        else:
            yield f"num_answers is {self.num_answers}: give num_loss_samples ({most}) or less"


MAY_CHANGE = (
    "dataset",  # its content is compared by its own fingerprint
    "device",
    "strategy",
    "accelerate",
    "sharding",
    "activation_checkpointing",
    "compile",
    "attention",
    "precision",
    "tf32",
    "scaler",
    "num_microbatches",
    "memory_share",
    "checkpoint",
    "evaluate",
    "num_loader_threads",
    "num_prefetch_batches",
    "staging",
    "num_compute_threads",
    "deterministic",
    "collective_timeout_min",
    "stall_timeout_min",
    "log_every_steps",
    "timing",
    "trackers",
    "sampler",
    "profile",
)
"""Fields of `TrainConfig` that may change when a training continues from its checkpoints: they
change speed, memory or the last bits, but not the order of the samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(CheckedConfig):
    """Config of the `train` stage."""

    device: Literal["cuda", "cpu"] = "cuda"
    """`cuda` fails at once if a rank sees no GPU, because there is no fallback to the CPU."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote; default: the output of the `consolidate` stage before."""
    model: ModelConfig = ModelConfig()
    """Model to train, and its initial weights."""
    adapters: AdaptersConfig | None = None
    """LoRA: small matrices that learn next to frozen layers; null adds none."""
    quantize: QuantizeConfig | None = None
    """QLoRA: frozen layers in 4 bits, which need adapters. Null quantises none."""
    learn: tuple[str, ...] | None = None
    """Parts that learn; all others are frozen. Values are parts (`vision`, `projector`, `language`,
    `heads`, `adapters`, `all` for all but adapters) or patterns of parameter names
    (`model.visual.blocks.3?.*` for 30 to 39). Null: `adapters` if there are some, else `all`. With
    phases, each phase has its own, and this key is not allowed."""
    levels: tuple[LevelConfig, ...] = ()
    """Chained targets, one for each assistant turn of a sample; a level reads those before it."""
    strategy: Literal["fsdp2", "ddp", "single", "accelerate"] = "fsdp2"
    """`fsdp2` shards parameters, gradients and optimizer over the ranks. Under `ddp` every rank has
    all of them, and gradients are averaged. `single` is one rank. `accelerate` follows a file of
    that library."""
    accelerate: AccelerateConfig | None = None
    """File of `strategy: accelerate`."""
    sharding: ShardingConfig = ShardingConfig()
    """Sharding under `fsdp2`."""
    activation_checkpointing: bool = False
    """Computes each layer of both towers again in the backward pass, with any strategy. A layer
    then stores only its inputs, for a third more work. Results are the same to the last bit."""
    compile: CompileConfig | None = None
    """`torch.compile` for each layer of a tower, with any strategy; null compiles nothing."""
    attention: Literal["auto", "varlen", "dense"] = "auto"
    """Separation of packed samples, and of Qwen's pictures of different sizes. `varlen`: the kernel
    receives the sample boundaries, which is slow on a CPU. `dense`: packed rows get a mask of row x
    row, and pictures of one size share a call. `auto`: `varlen` in half precision on GPUs of
    compute capability 8 and up (A100), otherwise `dense`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`auto`: bf16 on GPUs of compute capability 8 and up (A100), fp16 with a scaled loss on those
    of 7 (V100), fp32 on older ones and on CPUs. Weights and optimizer state are fp32 in any
    case."""
    tf32: bool = False
    """Computes products in fp32 as TF32 on GPUs of compute capability 8 and up: 10 bits of mantissa
    instead of 23, several times as fast. Matters most under `precision: fp32`."""
    scaler: ScalerConfig = ScalerConfig()
    """Scaling of the loss under fp16."""
    phases: tuple[PhaseConfig, ...] = ()
    """Consecutive parts of the training; each has its own length."""
    num_steps: Count | None = None
    """Optimizer steps; without phases exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over the data set, rounded down to whole steps."""
    global_batch_size: Count = 64
    """Samples in one optimizer step, over all ranks and microbatches. With `batching.kind: packed`
    it is an average: the number of rows is the nearest multiple of `num_lanes`."""
    num_microbatches: Count | Literal["auto"] = 1
    """Number of pieces into which each rank cuts its share of a step, to save memory; the step's
    result stays the same. `auto`: the fewest for which `memory_share` leaves room, found by trials
    before the first step."""
    memory_share: Annotated[float, Bounds(gt=0, le=1)] = 0.9
    """For `num_microbatches: auto`: share of a GPU's memory (on a CPU: of the rank's part of the
    job's) that the heaviest microbatch may fill. The rest is for gaps between tensors."""
    num_lanes: Count = DEFAULT_NUM_LANES
    """Number of equal streams into which the data is divided. It must be a multiple of the number
    of ranks. The order of samples depends on it and the seed, not on the number of ranks."""
    batching: BatchingConfig = BatchingConfig()
    """Composition of batches and rows."""
    reader: Literal["index", "webdataset"] = "index"
    """`index` reads any sample directly: exact order, exact resume, any number of ranks.
    `webdataset` streams shards through that library, and promises none of these."""
    stream: StreamConfig = StreamConfig()
    """Source of samples for `reader: webdataset`."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of pictures when they are read."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW's settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate as a function of the step."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Schedule of checkpoints, and how many are kept."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Generation on held-out samples after the last step."""
    num_loader_threads: Count = 2
    """Threads of each rank that read and decode."""
    num_prefetch_batches: Count = 4
    """Steps that the loader may be ahead."""
    staging: StagingConfig = StagingConfig()
    """Copying the data set to each node's own disk."""
    num_compute_threads: Count | None = None
    """Threads of one CPU operation in each rank. Null takes SLURM_CPUS_PER_TASK, or an equal share
    of the node if that is not set. On a CPU the last bits of the weights depend on it."""
    deterministic: bool = False
    """Refuse GPU kernels that are not deterministic, which makes training slower. CPU runs are
    always deterministic."""
    collective_timeout_min: Positive = 10.0
    """Time that a rank waits for the others before it fails. Staging in, reading weights, packing
    and the export do not count."""
    stall_timeout_min: Positive | None = 30.0
    """Time without progress of any rank after which the attempt ends and names the responsible
    rank. It is at least ten times the median step, and four times as long outside of steps. Null
    waits until the time limit. Under Slurm give 2 or more, because a shared file system may show
    progress a minute late."""
    seed: CountOrZero = 0
    """Seed of random weights and the order of samples."""
    log_every_steps: Count = 50
    """Steps between two lines in the log."""
    timing: Literal["events", "sync"] = "events"
    """`events` reads the GPU's times later, and waits for nothing. `sync` makes the host wait for
    the GPU at each border of a step phase, so that steps get slower."""
    trackers: TrackersConfig = TrackersConfig()
    """TensorBoard and other trackers of the course of the training."""
    sampler: SamplerConfig = SamplerConfig()
    """Recording of the load of each node."""
    profile: ProfileConfig = ProfileConfig()
    """Steps that PyTorch's profiler records."""

    def problems(self) -> list[str]:
        """Return one message for each broken rule, with field, value and remedy."""
        return train_problems(self)

    @property
    def learning_parts(self) -> tuple[str, ...]:
        """Return `learn`, or its default."""
        if self.learn is not None:
            return self.learn
        return ("all",) if self.adapters is None else ("adapters",)

    @property
    def has_trials(self) -> bool:
        """Return whether passes run before the first step, to choose how batches are made."""
        return self.batching.kind == "auto" or self.num_microbatches == "auto"


MEASURE_RUN = "measure"
"""Name of the trial among the entry points of the compute node; specs cannot use it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialConfig(CheckedConfig):
    """Config of a trial."""

    train: TrainConfig
    """Training with one phase, whose `num_steps` are run."""
    num_kept_steps: CountOrZero = 0
    """Above 0: microbatches of so many steps are read before the first one and reused, so that no
    data is read during the steps."""
    num_dropped_steps: CountOrZero = 0
    """Above 0: before the step `drop_before`, from 0, microbatches of so many steps are read and
    dropped, so that data read ahead during slow first steps does not feed the measured ones."""
    drop_before: CountOrZero = 0
