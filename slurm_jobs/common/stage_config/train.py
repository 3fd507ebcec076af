"""The config of the built-in `train` stage: every field, its default and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.common.config_values import InputPath, ModelRef


def _require(ok: bool, name: str, value: Any, remedy: str) -> None:
    if not ok:
        message = f"{name} is {value!r}: {remedy}"
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """A SigLIP-type vision encoder that starts from random weights."""

    hidden_size: int = 128
    """Width of a patch embedding."""
    num_layers: int = 4
    """Transformer layers."""
    num_heads: int = 4
    """Attention heads; they divide `hidden_size`."""
    patch_size: int = 16
    """Side of a patch in pixels; it divides the data set's image size."""
    mlp_ratio: int = 4
    """Width of a layer's MLP, as a multiple of `hidden_size`."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        for name in ("hidden_size", "num_layers", "num_heads", "patch_size", "mlp_ratio"):
            _require(
                getattr(self, name) >= 1, f"model.vision.{name}", getattr(self, name), "give 1+"
            )
        _require(
            self.hidden_size % self.num_heads == 0,
            "model.vision.num_heads",
            self.num_heads,
            f"give a divisor of model.vision.hidden_size ({self.hidden_size})",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageConfig:
    """A Qwen2-type language model that starts from random weights."""

    hidden_size: int = 128
    """Width of a token embedding."""
    num_layers: int = 3
    """Transformer layers."""
    num_heads: int = 4
    """Attention heads; they divide `hidden_size` into even parts."""
    num_kv_heads: int = 2
    """Heads of keys and values; they divide `num_heads`."""
    mlp_ratio: int = 3
    """Width of a layer's gated MLP, as a multiple of `hidden_size`."""
    max_positions: int = 4096
    """Longest sequence in tokens, image tokens included."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        for name in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "mlp_ratio"):
            value = getattr(self, name)
            _require(value >= 1, f"model.language.{name}", value, "give 1 or more")
        _require(
            self.hidden_size % (2 * self.num_heads) == 0,
            "model.language.num_heads",
            self.num_heads,
            f"rotary embeddings need hidden_size / num_heads to be even; "
            f"hidden_size is {self.hidden_size}",
        )
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "model.language.num_kv_heads",
            self.num_kv_heads,
            f"give a divisor of model.language.num_heads ({self.num_heads})",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model is trained."""

    type: Literal["small_vlm"] = "small_vlm"
    """`small_vlm`: SigLIP-type encoder, two-layer projector, Qwen2-type language model."""
    path: ModelRef | None = None
    """Folder to start from (a `model/` that an earlier run exported); default: random weights."""
    vision: VisionConfig = VisionConfig()
    """Of a model that starts from random weights."""
    language: LanguageConfig = LanguageConfig()
    """Of a model that starts from random weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW."""

    learning_rate: float = 1e-4
    """The peak of the schedule."""
    weight_decay: float = 0.01
    """Applied to matrices; vectors (biases, norms) and embeddings of positions have none."""
    beta1: float = 0.9
    """Decay of the mean gradient."""
    beta2: float = 0.95
    """Decay of the mean squared gradient."""
    grad_clip_norm: float | None = 1.0
    """Largest norm of the gradient over all parameters; null switches clipping off."""

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        _require(self.learning_rate > 0, "optimizer.learning_rate", self.learning_rate, "give > 0")
        _require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "give >= 0")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"optimizer.{name}", value, "give 0 <= beta < 1")
        clip = self.grad_clip_norm
        _require(clip is None or clip > 0, "optimizer.grad_clip_norm", clip, "give > 0, or null")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """The learning rate as a function of the step."""

    kind: Literal["onecycle", "cosine", "constant"] = "cosine"
    """After the warm-up: `onecycle` falls by a cosine to 1/10,000 of the peak, `cosine` to 1/10,
    `constant` stays."""
    warmup_share: float = 0.05
    """Share of all steps in which the learning rate rises to its peak."""

    def __post_init__(self) -> None:
        """Refuse a warm-up that is no share."""
        share = self.warmup_share
        _require(0 <= share < 1, "schedule.warmup_share", share, "give a share from 0 up to 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """When the state of training is saved. A stop signal and the last step always save."""

    every_min: float | None = 30.0
    """Minutes between checkpoints, by rank 0's clock; null switches this trigger off."""
    every_steps: int | None = None
    """Steps between checkpoints; null switches this trigger off."""
    keep_last: int = 2
    """How many whole checkpoints stay; 2 or more survive a damaged newest one."""

    def __post_init__(self) -> None:
        """Refuse intervals that never or always come."""
        _require(
            self.every_min is None or self.every_min > 0,
            "checkpoint.every_min",
            self.every_min,
            "give minutes > 0, or null",
        )
        _require(
            self.every_steps is None or self.every_steps >= 1,
            "checkpoint.every_steps",
            self.every_steps,
            "give 1 or more, or null",
        )
        _require(self.keep_last >= 1, "checkpoint.keep_last", self.keep_last, "give 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Greedy generation on a held-out manifest after the last step."""

    manifest: InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`; null leaves evaluation out."""
    num_samples: int | None = None
    """Only the first so many rows; null takes all."""
    max_new_tokens: int = 64
    """Longest answer in tokens."""
    batch_size: int = 32
    """Samples that one rank generates at a time."""

    def __post_init__(self) -> None:
        """Refuse counts below one."""
        for name in ("num_samples", "max_new_tokens", "batch_size"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"evaluate.{name}", value, "give 1 or more")


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
    shard_unit_min_params: int = 1_000_000
    """Layers are gathered one by one under fsdp2; a tower with fewer parameters than this is
    gathered with the rest of the model, because small collectives cost more than they free."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on GPUs of compute capability 8 and up, else fp32. Weights and optimizer state
    are fp32 in any case."""
    num_steps: int | None = None
    """Optimizer steps; exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: float | None = None
    """Passes over the data set, rounded down to whole steps."""
    global_batch_size: int = 64
    """Samples in one optimizer step, over all ranks and microbatches."""
    num_microbatches: int = 1
    """Into how many pieces each rank cuts its share of a step, to save memory."""
    num_lanes: int = 8
    """Fixed division of the data order; the number of ranks must divide it. The order of samples
    depends on it and the seed, not on the number of ranks."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW's settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate as a function of the step."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When state is saved, and how much of it stays."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Generation on held-out samples after the last step."""
    num_loader_threads: int = 2
    """Threads that read and decode, a rank."""
    num_prefetch_batches: int = 4
    """Steps that the loader may be ahead."""
    num_compute_threads: int | None = None
    """Threads of one CPU operation, a rank; null takes SLURM_CPUS_PER_TASK, else an equal share
    of the node. The last bits of the weights depend on it on a CPU."""
    deterministic: bool = False
    """Refuse GPU kernels that are not deterministic; slower. A CPU always is."""
    collective_timeout_min: float = 10.0
    """How long a rank waits for the others before it fails."""
    seed: int = 0
    """Of random weights and the order of samples."""
    log_every_steps: int = 50
    """Steps between two lines in the log."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, naming field, value and remedy."""
        if (self.num_steps is None) == (self.num_epochs is None):
            message = (
                f"num_steps is {self.num_steps} and num_epochs is {self.num_epochs}: "
                "give exactly one of them"
            )
            raise ValueError(message)
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "give 1 or more")
        for name in ("num_epochs", "collective_timeout_min"):
            value = getattr(self, name)
            _require(value is None or value > 0, name, value, "give more than 0")
        _require(
            self.shard_unit_min_params >= 0,
            "shard_unit_min_params",
            self.shard_unit_min_params,
            "give 0 or more",
        )
        _require(
            self.global_batch_size % self.num_lanes == 0,
            "num_lanes",
            self.num_lanes,
            f"give a divisor of global_batch_size ({self.global_batch_size})",
        )


_AT_LEAST_ONE = (
    "num_steps",
    "global_batch_size",
    "num_microbatches",
    "num_lanes",
    "num_loader_threads",
    "num_prefetch_batches",
    "num_compute_threads",
    "log_every_steps",
)
