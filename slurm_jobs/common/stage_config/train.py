"""Config of the built-in `train` stage; its parts have modules of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from slurm_jobs.common.config_values import (
    Bounds,
    Count,
    CountOrZero,
    InputPath,
    Positive,
    check_bounds,
    refuse,
)
from slurm_jobs.common.stage_config.accelerate import AccelerateConfig
from slurm_jobs.common.stage_config.adapters import AdaptersConfig
from slurm_jobs.common.stage_config.checkpoint import CheckpointConfig
from slurm_jobs.common.stage_config.compile import CompileConfig
from slurm_jobs.common.stage_config.evaluate import EvaluateConfig
from slurm_jobs.common.stage_config.levels import LevelConfig
from slurm_jobs.common.stage_config.model import ModelConfig
from slurm_jobs.common.stage_config.optimizer import OptimizerConfig, ScheduleConfig
from slurm_jobs.common.stage_config.phases import PhaseConfig
from slurm_jobs.common.stage_config.profile import ProfileConfig
from slurm_jobs.common.stage_config.quantize import QuantizeConfig
from slurm_jobs.common.stage_config.reading import AugmentConfig, BatchingConfig, StreamConfig
from slurm_jobs.common.stage_config.sampler import SamplerConfig
from slurm_jobs.common.stage_config.sharding import ScalerConfig, ShardingConfig
from slurm_jobs.common.stage_config.staging import StagingConfig
from slurm_jobs.common.stage_config.trackers import TrackersConfig
from slurm_jobs.common.stage_config.train_checks import train_problems

DEFAULT_NUM_LANES = 8
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
class TrainConfig:
    """Config of the `train` stage."""

    device: Literal["cuda", "cpu"] = "cuda"
    """`cuda` fails at once if a rank sees no GPU; there is no fallback to the CPU."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote; default: the output of the `consolidate` stage before."""
    model: ModelConfig = ModelConfig()
    """Model to train, and its initial weights."""
    adapters: AdaptersConfig | None = None
    """LoRA: small matrices that learn next to frozen layers; null adds none."""
    quantize: QuantizeConfig | None = None
    """QLoRA: frozen layers in 4 bits; needs adapters. Null quantises none."""
    learn: tuple[str, ...] | None = None
    """Parts that learn; all others are frozen. Values are parts (`vision`, `projector`, `language`,
    `heads`, `adapters`, `all` for all but adapters) or patterns of parameter names
    (`model.visual.blocks.3?.*`, which are 30 to 39). Null: `adapters` if there are some, else
    `all`. With phases each has its own."""
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
    then stores only its inputs, for a third more work; results are the same to the last bit."""
    compile: CompileConfig | None = None
    """`torch.compile` for each layer of a tower, with any strategy; null compiles nothing."""
    attention: Literal["auto", "varlen", "dense"] = "auto"
    """Separation of packed samples, and of pictures of different sizes (Qwen's). `varlen`: a kernel
    takes their borders; on a CPU a slow reference does. `dense`: packed rows have a mask of row x
    row, and pictures of one size are one call. `auto`: `varlen` on GPUs of compute capability 8 and
    up (A100) in half precision, else `dense`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`auto`: bf16 on GPUs of compute capability 8 and up (A100), fp16 with a scaled loss on those
    of 7 (V100), fp32 on older ones and on CPUs. Weights and optimizer state are fp32 in any
    case."""
    tf32: bool = False
    """Computes products in fp32 as TF32 on GPUs of compute capability 8 and up: with 10 bits of
    mantissa instead of 23, several times as fast. Under `precision: fp32` this is most of the work.
    """
    scaler: ScalerConfig = ScalerConfig()
    """Scaling of the loss under fp16."""
    phases: tuple[PhaseConfig, ...] = ()
    """Consecutive parts of the training; each has its own length."""
    num_steps: Count | None = None
    """Optimizer steps; without phases exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over the data set, rounded down to whole steps."""
    global_batch_size: Count = 64
    """Samples in one optimizer step, over all ranks and microbatches; with `batching.kind: packed`
    on average: the number of rows is the multiple of `num_lanes` that comes nearest."""
    num_microbatches: Count | Literal["auto"] = 1
    """Number of pieces into which each rank cuts its share of a step, to save memory; the step's
    result stays the same. `auto`: the fewest for which `memory_share` leaves room, found by trials
    before the first step."""
    memory_share: Annotated[float, Bounds(gt=0, le=1)] = 0.9
    """For `num_microbatches: auto`: share of a GPU's memory (`device: cpu`: of a rank's part of the
    job's) that the heaviest microbatch may fill. The rest is for the gaps between tensors."""
    num_lanes: Count = DEFAULT_NUM_LANES
    """Fixed division of the data order; the number of ranks must divide it. The order of samples
    depends on it and the seed, not on the number of ranks."""
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
    """Threads of one CPU operation in each rank; null takes SLURM_CPUS_PER_TASK, else an equal
    share of the node. The last bits of the weights depend on it on a CPU."""
    deterministic: bool = False
    """Refuse GPU kernels that are not deterministic; slower. A CPU always is."""
    collective_timeout_min: Positive = 10.0
    """Time that a rank waits for the others before it fails; staging in, reading weights, packing
    and the export do not count."""
    stall_timeout_min: Positive | None = 30.0
    """Longest time without progress of any rank before the attempt is ended and the responsible
    rank is named; at least ten times the median step. Outside of steps it is four times as long.
    Null waits until the time limit. Less than 2 minutes is too short under Slurm, because progress
    may be visible on a shared file system only after a minute."""
    seed: CountOrZero = 0
    """Seed of random weights and the order of samples."""
    log_every_steps: Count = 50
    """Steps between two lines in the log."""
    timing: Literal["events", "sync"] = "events"
    """`sync` makes the host wait for the GPU at each border of a step phase, so that phases are the
    GPU's own times; steps get slower. `events` reads them later, and waits for nothing."""
    trackers: TrackersConfig = TrackersConfig()
    """TensorBoard and other trackers of the course of the training."""
    sampler: SamplerConfig = SamplerConfig()
    """Recording of the load of each node."""
    profile: ProfileConfig = ProfileConfig()
    """Steps that PyTorch's profiler records."""

    def __post_init__(self) -> None:
        """Check that the config can run; errors name field, value and remedy."""
        check_bounds(self)
        refuse(train_problems(self))

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
