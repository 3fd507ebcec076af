"""Config of adapters: small trained matrices next to frozen layers."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import Count, Positive, ShareBelowOne, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptersConfig:
    """LoRA (arXiv:2106.09685): a learned product of two small matrices is added to a frozen one."""

    rank: Count = 16
    """Inner size of the product."""
    alpha: Positive = 32.0
    """Scale of the product: it is multiplied by `alpha / rank`."""
    dropout: ShareBelowOne = 0.0
    """Share of the adapters' inputs that is dropped at random in training."""
    targets: tuple[str, ...] = ("language",)
    """Linear layers with adapters: `language` (all within the layers of the language model), or
    patterns of full names (`model.visual.blocks.*.attn.qkv`)."""

    def __post_init__(self) -> None:
        """Check bounds, and that adapters have a target."""
        check_bounds(self)
        if not self.targets:
            message = "targets is empty: give `language`, or patterns of names of linear layers"
            raise ValueError(message)
