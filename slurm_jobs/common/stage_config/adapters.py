"""Small trained matrices beside frozen layers."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import Count, Positive, ShareBelowOne, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptersConfig:
    """LoRA (arXiv:2106.09685): beside a frozen matrix, the product of two small ones is learned."""

    rank: Count = 16
    """Inner size of the product."""
    alpha: Positive = 32.0
    """The product is multiplied by `alpha / rank`."""
    dropout: ShareBelowOne = 0.0
    """Share of the inputs of adapters that is left out at random in training."""
    targets: tuple[str, ...] = ("language",)
    """Linear layers that are adapted: `language` (all within the layers of the language model), or
    patterns of full names (`model.visual.blocks.*.attn.qkv`)."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds, and adapters of nothing."""
        check_bounds(self)
        if not self.targets:
            message = "targets is empty: give `language`, or patterns of names of linear layers"
            raise ValueError(message)
