"""How weights are changed: the optimizer, and the learning rate as a function of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    NotNegative,
    Positive,
    ShareBelowOne,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW (arXiv:1711.05101)."""

    kind: Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"] = "adamw"
    """`adamw` is PyTorch's, fused, with 8 bytes of state a learned parameter. The others are
    bitsandbytes': `adamw_8bit` has 2 (arXiv:2110.02861; tensors of less than 4,096 numbers keep 8),
    `paged_*` lets the GPU's driver move the state to the host's memory where the GPU's is full."""
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

    @property
    def is_paged(self) -> bool:
        """Whether it needs the GPU's driver."""
        return self.kind.startswith("paged_")


def paged_problem(optimizer: OptimizerConfig, *, device: str, is_offloaded: bool) -> str | None:
    """Why paged state would have no GPU whose memory it could leave, with the remedy."""
    kind = optimizer.kind
    if not optimizer.is_paged or (device != "cpu" and not is_offloaded):
        return None
    told = "device is cpu" if device == "cpu" else "sharding.cpu_offload is true"
    return (
        f"optimizer.kind is {kind} and {told}: its state leaves the memory of a GPU, and lies on "
        f"none here; set `kind: {kind.removeprefix('paged_')}`"
    )


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
