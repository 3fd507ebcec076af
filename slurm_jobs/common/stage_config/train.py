"""The config of the built-in `train` stage: every field, its default and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    Count,
    CountOrZero,
    InputPath,
    NotNegative,
    Positive,
    ShareBelowOne,
    check_bounds,
)
from slurm_jobs.common.stage_config.reading import AugmentConfig, BatchingConfig, StreamConfig

MAY_CHANGE = (
    "dataset",  # its content is compared by its own fingerprint
    "device",
    "strategy",
    "shard_unit_min_params",
    "precision",
    "num_microbatches",
    "checkpoint",
    "evaluate",
    "num_loader_threads",
    "num_prefetch_batches",
    "staging",
    "num_compute_threads",
    "deterministic",
    "collective_timeout_min",
    "log_every_steps",
)
"""Fields of `TrainConfig` with which a training goes on from its checkpoints: they change speed,
memory or the last bits, not which samples are learned in which order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """A SigLIP-type vision encoder that starts from random weights."""

    hidden_size: Count = 128
    """Width of a patch embedding."""
    num_layers: Count = 4
    """Transformer layers."""
    num_heads: Count = 4
    """Attention heads; they divide `hidden_size`."""
    patch_size: Count = 16
    """Side of a patch in pixels; it divides the data set's image size."""
    mlp_ratio: Count = 4
    """Width of a layer's MLP, as a multiple of `hidden_size`."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        check_bounds(self)
        if self.hidden_size % self.num_heads:
            message = (
                f"num_heads is {self.num_heads}: give a divisor of hidden_size ({self.hidden_size})"
            )
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageConfig:
    """A Qwen2-type language model that starts from random weights."""

    hidden_size: Count = 128
    """Width of a token embedding."""
    num_layers: Count = 3
    """Transformer layers."""
    num_heads: Count = 4
    """Attention heads; they divide `hidden_size` into even parts."""
    num_kv_heads: Count = 2
    """Heads of keys and values; they divide `num_heads`."""
    mlp_ratio: Count = 3
    """Width of a layer's gated MLP, as a multiple of `hidden_size`."""
    max_positions: Count = 4096
    """Longest sequence in tokens, image tokens included."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        check_bounds(self)
        if self.hidden_size % (2 * self.num_heads):
            message = (
                f"num_heads is {self.num_heads}: rotary embeddings need hidden_size / num_heads "
                f"to be even; hidden_size is {self.hidden_size}"
            )
            raise ValueError(message)
        if self.num_heads % self.num_kv_heads:
            message = (
                f"num_kv_heads is {self.num_kv_heads}: give a divisor of num_heads "
                f"({self.num_heads})"
            )
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model is trained."""

    type: Literal["small_vlm"] = "small_vlm"
    """`small_vlm`: SigLIP-type encoder, two-layer projector, Qwen2-type language model."""
    path: InputPath | None = None
    """Folder to start from (a `model/` that an earlier run exported); default: random weights."""
    vision: VisionConfig = VisionConfig()
    """Of a model that starts from random weights."""
    language: LanguageConfig = LanguageConfig()
    """Of a model that starts from random weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW."""

    learning_rate: Positive = 1e-4
    """The peak of the schedule."""
    weight_decay: NotNegative = 0.01
    """Applied to matrices; vectors (biases, norms) and embeddings of positions have none."""
    beta1: ShareBelowOne = 0.9
    """Decay of the mean gradient."""
    beta2: ShareBelowOne = 0.95
    """Decay of the mean squared gradient."""
    grad_clip_norm: Positive | None = 1.0
    """Largest norm of the gradient over all parameters; null switches clipping off."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """The learning rate as a function of the step."""

    kind: Literal["onecycle", "cosine", "constant"] = "cosine"
    """After the warm-up: `onecycle` falls by a cosine to 1/10,000 of the peak, `cosine` to 1/10,
    `constant` stays."""
    warmup_share: ShareBelowOne = 0.05
    """Share of all steps in which the learning rate rises to its peak."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """When the state of training is saved. A stop signal and the last step always save."""

    every_min: Positive | None = 30.0
    """Minutes between checkpoints, by rank 0's clock; null switches this trigger off."""
    every_steps: Count | None = None
    """Steps between checkpoints; null switches this trigger off."""
    keep_last: Count = 2
    """How many whole checkpoints stay; 2 or more survive a damaged newest one."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Greedy generation on a held-out manifest after the last step."""

    manifest: InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`; null leaves evaluation out. Prompts
    and limits are those that the data set was preprocessed with."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; the manifest's own folder if not given."""
    num_samples: Count | None = None
    """Only the first so many rows; null takes all."""
    max_new_tokens: Count = 64
    """Longest answer in tokens."""
    batch_size: Count = 32
    """Samples that one rank generates at a time."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingConfig:
    """Copying the data set to each node's own disk."""

    mode: Literal["beside", "before", "off"] = "beside"
    """`beside`: training begins at once, and reads from the shared file system what is not here
    yet. `before`: it begins when the copy is done. `off`: it reads the shared file system."""
    num_threads: Count = 4
    """Shards that a node copies at a time."""
    max_mb_per_s: Positive | None = None
    """How fast a node may copy from the shared file system, in 1e6 bytes a second, over all jobs of
    the user there; null sets no limit."""
    max_gb: Positive | None = None
    """How much all copies of the user on a node may take, in 1e9 bytes; null: what is free."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Config of the `train` stage."""

    device: Literal["cuda", "cpu"] = "cuda"
    """`cuda` fails at once where a rank sees no GPU; nothing falls back to the CPU."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote; default: the output of the `consolidate` stage before."""
    model: ModelConfig = ModelConfig()
    """Which model is trained, and from which weights."""
    strategy: Literal["fsdp2", "single"] = "fsdp2"
    """`fsdp2` shards parameters, gradients and optimizer over all ranks; `single` is one rank."""
    shard_unit_min_params: CountOrZero = 1_000_000
    """Layers are gathered one by one under fsdp2; a tower with fewer parameters than this is
    gathered with the rest of the model, because small collectives cost more than they free."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on GPUs of compute capability 8 and up, else fp32. Weights and optimizer state
    are fp32 in any case."""
    num_steps: Count | None = None
    """Optimizer steps; exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over the data set, rounded down to whole steps."""
    global_batch_size: Count = 64
    """Samples in one optimizer step, over all ranks and microbatches; with `batching.kind: packed`
    on average: the number of rows is the multiple of `num_lanes` that comes nearest."""
    num_microbatches: Count = 1
    """Into how many pieces each rank cuts its share of a step, to save memory."""
    num_lanes: Count = 8
    """Fixed division of the data order; the number of ranks must divide it. The order of samples
    depends on it and the seed, not on the number of ranks."""
    batching: BatchingConfig = BatchingConfig()
    """Which samples share a batch, and which a row of it."""
    reader: Literal["index", "webdataset"] = "index"
    """`index` reads any sample directly: exact order, exact resume, any number of ranks.
    `webdataset` streams shards through that library, and promises none of these."""
    stream: StreamConfig = StreamConfig()
    """For `reader: webdataset`: what is streamed."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of pictures while they are read."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW's settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate as a function of the step."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When state is saved, and how much of it stays."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Generation on held-out samples after the last step."""
    num_loader_threads: Count = 2
    """Threads that read and decode, a rank."""
    num_prefetch_batches: Count = 4
    """Steps that the loader may be ahead."""
    staging: StagingConfig = StagingConfig()
    """Copying the data set to each node's own disk."""
    num_compute_threads: Count | None = None
    """Threads of one CPU operation, a rank; null takes SLURM_CPUS_PER_TASK, else an equal share
    of the node. The last bits of the weights depend on it on a CPU."""
    deterministic: bool = False
    """Refuse GPU kernels that are not deterministic; slower. A CPU always is."""
    collective_timeout_min: Positive = 10.0
    """How long a rank waits for the others before it fails; staging in does not count."""
    seed: CountOrZero = 0
    """Of random weights and the order of samples."""
    log_every_steps: Count = 50
    """Steps between two lines in the log."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, naming field, value and remedy."""
        check_bounds(self)
        if self.num_steps is None and self.num_epochs is None:
            message = "neither num_steps nor num_epochs is given: give exactly one of them"
            raise ValueError(message)
        if self.num_steps is not None and self.num_epochs is not None:
            message = (
                f"num_steps is {self.num_steps} and num_epochs is {self.num_epochs}: "
                "give exactly one of them"
            )
            raise ValueError(message)
        if self.reader == "webdataset" and self.batching.kind != "shuffled":
            message = (
                f"batching.kind is {self.batching.kind} and reader is webdataset: a stream knows "
                f"no lengths ahead; use `reader: index`, or `batching: {{kind: shuffled}}`"
            )
            raise ValueError(message)
        if self.global_batch_size % self.num_lanes:
            message = (
                f"num_lanes is {self.num_lanes}: give a divisor of global_batch_size "
                f"({self.global_batch_size})"
            )
            raise ValueError(message)
