"""Parts of the config of `train`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from slurm_jobs.formats.config import (
    Bounds,
    CheckedConfig,
    Count,
    CountOrZero,
    InputPath,
    NotNegative,
    PathOrAddress,
    Positive,
    Share,
    ShareBelowOne,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateConfig:
    """Settings of `strategy: accelerate`."""

    config: InputPath
    """File in the format of `accelerate config`: `distributed_type` MULTI_GPU, FSDP (version 2),
    MULTI_CPU or NO. Its `mixed_precision` applies with `precision: auto`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig(CheckedConfig):
    """Schedule of checkpoints. A stop signal and the last step always save."""

    every_min: Positive | None = 30.0
    """Minutes between checkpoints, by rank 0's clock; null disables this trigger."""
    every_steps: Count | None = None
    """Steps between checkpoints, counted from the start of each phase; null disables this trigger.
    """
    mode: Literal["async", "sync"] = "async"
    """`async` copies the state and continues, while a thread writes the copy. The copy takes host
    memory as large as the rank's share of weights and optimizer. `sync` waits until the checkpoint
    is written."""
    keep_last: Count = 2
    """Number of complete checkpoints to keep. With 2 or more, a training survives a damaged newest
    one."""
    keep_after_end: CountOrZero | None = None
    """Number of checkpoints of each phase to keep once the training is complete. Null keeps those
    that are there. With 0, a resume that runs the training again begins at step 0, even if only
    `evaluate` has changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileConfig(CheckedConfig):
    """Settings of `torch.compile` for each layer; `{}` is enough."""

    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """`inductor` makes kernels: with Triton on a GPU, with the node's C++ compiler on a CPU. The
    others help to find why compiling fails, and make none: `eager` only traces layers, `aot_eager`
    also derives their backward pass."""
    towers: tuple[Literal["vision", "language"], ...] = ("language",)
    """Towers whose layers are compiled. `vision` is possible for the `small_vlm`, SmolVLM and
    Idefics3, and for Qwen's models with `attention: varlen`. It is not possible for LLaVA and
    InternVL, because their layers return intermediate values."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if not self.towers or len(set(self.towers)) < len(self.towers):
            yield (
                f"compile.towers is [{', '.join(self.towers)}]: give `vision`, `language` or both, "
                "or leave `compile` out"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig(CheckedConfig):
    """AdamW (arXiv:1711.05101)."""

    kind: Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"] = "adamw"
    """`adamw` is PyTorch's, fused, with 8 bytes of state for each learned parameter. The others are
    bitsandbytes': `adamw_8bit` has 2 (arXiv:2110.02861; tensors of less than 4,096 numbers keep 8),
    `paged_*` lets the GPU's driver move the state to the host's memory when the GPU's is full."""
    learning_rate: Positive = 1e-4
    """Peak of the schedule."""
    weight_decay: NotNegative = 0.01
    """Decay of matrices; vectors (biases, norms) and embeddings of positions have none."""
    beta1: ShareBelowOne = 0.9
    """Decay of the mean gradient."""
    beta2: ShareBelowOne = 0.95
    """Decay of the mean squared gradient."""
    grad_clip_norm: Positive | None = 1.0
    """Largest norm of the gradient over all parameters; null disables clipping."""

    @property
    def is_paged(self) -> bool:
        """Return whether it needs the GPU's driver."""
        return self.kind.startswith("paged_")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig(CheckedConfig):
    """Learning rate as a function of the step."""

    kind: Literal["onecycle", "cosine", "constant"] = "cosine"
    """Shape after the warm-up: `onecycle` falls by a cosine to 1/10,000 of the peak, `cosine` to
    1/10, `constant` stays."""
    warmup_share: ShareBelowOne = 0.05
    """Share of all steps in which the learning rate rises to its peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileConfig(CheckedConfig):
    """Trace and table of operators by PyTorch's profiler, in the attempt's timing folder."""

    steps: tuple[CountOrZero, ...] | None = None
    """First and last recorded step, `[20, 40]`, counted from 0 as in the step records; null for
    none. Only these steps, and the one before them, get slower."""
    ranks: tuple[CountOrZero, ...] = (0,)
    """Ranks that record."""
    memory: bool = False
    """Also record the bytes that operators allocate, which is slower and makes a larger trace."""
    stacks: bool = False
    """Also record the lines of Python that called an operator, which is much slower."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.steps is not None and (len(self.steps) != 2 or self.steps[0] > self.steps[1]):
            yield (
                f"steps is {list(self.steps)}: give the first and the last step, such as [20, 40]"
            )
        if not self.ranks:
            yield "ranks is empty: name at least one, or leave out `profile.steps`"

    def why_never(self, num_steps: int) -> str | None:
        """Return why no step is recorded, although some are wanted; else None."""
        if self.steps is None or self.steps[0] < num_steps:
            return None
        return (
            f"profile.steps begins at step {self.steps[0]}, and the training has {num_steps}, "
            "counted from 0: name earlier ones"
        )


MOST_TOKENS = 2**31 - 1
"""Most tokens of a row: attention kernels take segment ends as int32."""

PackingStrategy = Literal["exact", "none", "constrained", "greedy", "ffd", "bfd", "knapsack"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchingConfig(CheckedConfig):
    """Composition of batches and of their rows."""

    kind: Literal["shuffled", "grouped", "packed", "auto"] = "shuffled"
    """`shuffled`: one sample in each row, in random order, padded to the longest of the microbatch.
    `grouped`: one sample in each row, samples of similar length in a batch, with little padding.
    `packed`: several samples in each row that never see each other, with almost no padding. `auto`:
    `grouped` or `packed`, whichever was faster when the training began."""
    strategy: PackingStrategy = "exact"
    """Method by which `packed` fills rows: `exact` searches samples that fill a row to the last
    token; the others are common heuristics, for comparison."""
    max_tokens: Annotated[int, Bounds(ge=1, le=MOST_TOKENS)] | None = None
    """`packed`: tokens of a row; null takes the data set's own limit (`max_tokens` of
    `preprocess`). No sample may be longer."""
    max_images: Count | None = None
    """`packed`: most images in a row; null for no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig(CheckedConfig):
    """Random changes of pictures when they are read. They depend on `seed`, epoch and sample."""

    mirror_share: Share = 0.0
    """Share of pictures that are mirrored left to right. Keep 0 if texts say left and right, or if
    the processor cuts pictures into tiles."""
    min_crop_share: Share = 1.0
    """Smallest random share of a picture's area that is kept and resized; 1 cuts none. Not for
    processors that cut pictures into tiles."""
    brightness: ShareBelowOne = 0.0
    """Largest change of brightness: 0.2 draws factors of 0.8 to 1.2."""
    contrast: ShareBelowOne = 0.0
    """Largest change of contrast, as of brightness."""
    saturation: ShareBelowOne = 0.0
    """Largest change of saturation, as of brightness."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.min_crop_share <= 0:
            yield f"min_crop_share is {self.min_crop_share}: give a share above 0, to 1"


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamConfig(CheckedConfig):
    """Source of samples for `reader: webdataset`."""

    urls: tuple[PathOrAddress, ...] = ()
    """Paths or addresses of shards; `{000..099}` is replaced by each number. Empty: the data set's
    own shards. `dataset` still describes the samples."""
    shuffle_buffer: Count = 1000
    """Number of samples among which the next one is drawn; 1 keeps the order of the shards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig(CheckedConfig):
    """Readings of each node during training: GPUs, processor, memory, disks and network."""

    every_s: Annotated[float, Bounds(ge=0.1)] | None = 1.0
    """Seconds between two readings; null disables them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardingConfig(CheckedConfig):
    """Sharding under `strategy: fsdp2`; each key trades memory for speed, and changes no update."""

    within: Literal["all", "node"] = "all"
    """`all`: parameters, gradients and optimizer are sharded over all ranks. `node`: over the ranks
    of a node; each node has a full copy, and only gradients go between nodes. That takes more
    memory, and helps if the network is slower than a node's own links."""
    unit_min_params: CountOrZero = 1_000_000
    """Smallest tower, in parameters, whose layers are gathered one by one. A smaller one is
    gathered with the rest of the model, because small collectives cost more than they free."""
    reshard_after_forward: bool = True
    """Frees a layer's gathered weights after its forward pass and gathers them again for its
    backward pass. False keeps them: a third less to send, all weights in memory."""
    forward_prefetch: CountOrZero = 0
    """Number of layers to gather ahead, each with its weights in memory. 0 leaves it to the
    device's queue, which gathers the next layer while one computes."""
    accumulate: Literal["whole", "sharded"] = "whole"
    """Gradients between the microbatches of a step. `whole`: reduced once, after the last, and
    until then 4 bytes for each learned parameter on each rank. `sharded`: reduced after each."""
    cpu_offload: bool = False
    """Keeps sharded weights, gradients and optimizer state in the node's memory, and updates them
    there; slow, for models that do not fit otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalerConfig(CheckedConfig):
    """Scaling of the loss under fp16, without which small gradients would become zero."""

    init_scale: Positive = 65536.0
    """First factor of the loss; halved when the loss or a gradient overflows."""
    growth_interval: Count = 2000
    """Steps without an overflow after which the scale is doubled."""
    max_skips: Count = 20
    """Number of successive steps skipped because of overflows at which the attempt fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingConfig(CheckedConfig):
    """Copy of the data set to each node's own disk."""

    mode: Literal["beside", "before", "off"] = "beside"
    """`beside`: training begins at once, and reads missing shards from the shared file system.
    `before`: it begins when the copy is done. `"off"`, in quotes: it reads the shared file system.
    """
    num_threads: Count = 4
    """Shards that a node copies at a time."""
    max_mb_per_s: Positive | None = None
    """Rate limit of a node's copies from the shared file system, in 1e6 bytes per second, over all
    jobs of the user there; null for no limit."""
    max_gb: Positive | None = None
    """Size limit of all copies of the user on a node, in 1e9 bytes; null for all free space."""


TrackerName = Literal[
    "tensorboard",
    "wandb",
    "mlflow",
    "aim",
    "clearml",
    "comet_ml",
    "dvclive",
    "swanlab",
    "trackio",
]
"""Trackers that accelerate supports."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackersConfig(CheckedConfig):
    """Trackers to which rank 0 reports the course of a training; none by default."""

    use: tuple[TrackerName, ...] = ()
    """Names of trackers. The stage's Python needs the package of the same name; `tensorboard` is a
    part of `slurm-jobs[train]`."""
    every_steps: Count = 10
    """Steps between two entries."""
    project: str = "slurm-jobs"
    """Name of the project, or the experiment, in the tracking service."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """More arguments for each tracker's class in `accelerate.tracking`, which passes them to the
    package: `wandb: {mode: offline}`. Put keys of an account into the environment."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if len(set(self.use)) < len(self.use):
            yield f"use is {', '.join(self.use)}: name each tracker once"
        if unused := self.options.keys() - set(self.use):
            yield (
                f"options of {', '.join(sorted(unused))} are given, which use does not name: add "
                "it to use, or leave them out"
            )


DEFAULT_NUM_LANES = 8
