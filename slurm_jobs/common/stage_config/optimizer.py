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
