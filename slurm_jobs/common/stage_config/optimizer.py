"""Config of the optimizer and the learning rate schedule."""

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

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)

    @property
    def is_paged(self) -> bool:
        """Return whether it needs the GPU's driver."""
        return self.kind.startswith("paged_")


def paged_problem(optimizer: OptimizerConfig, *, device: str, is_offloaded: bool) -> str | None:
    """Return a problem with remedy if paged state has no GPU memory to leave."""
    kind = optimizer.kind
    if not optimizer.is_paged or (device != "cpu" and not is_offloaded):
        return None
    setting = "device is cpu" if device == "cpu" else "sharding.cpu_offload is true"
    return (
        f"optimizer.kind is {kind} and {setting}: its state is paged out of a GPU's memory, "
        f"and no GPU holds it here; set `kind: {kind.removeprefix('paged_')}`"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Learning rate as a function of the step."""

    kind: Literal["onecycle", "cosine", "constant"] = "cosine"
    """Shape after the warm-up: `onecycle` falls by a cosine to 1/10,000 of the peak, `cosine` to
    1/10, `constant` stays."""
    warmup_share: ShareBelowOne = 0.05
    """Share of all steps in which the learning rate rises to its peak."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
