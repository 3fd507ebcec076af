"""Attention sizes of a model, from which PyTorch selects the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.models.vision_language import VisionLanguageModel


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSizes:
    """Sizes of one layer of a tower."""

    num_heads: int
    num_kv_heads: int
    """Heads of keys and values; if fewer than `num_heads`, several heads share one."""
    head_dim: int


def attention_sizes(model: VisionLanguageModel) -> tuple[AttentionSizes, AttentionSizes]:
    """Return the sizes of the vision tower and the language model; with weights or on "meta".

    If they differ between layers (Gemma 4), those of the largest heads count.
    """
    sizes = []
    for tower in model.towers():
        # Attribute names that all of transformers' attention modules have. Some layers of Qwen3.5
        # have a delta net instead, and those of Gemma 4 differ in size.
        attentions: list[Any] = [
            module for layer in tower for module in layer.modules() if hasattr(module, "head_dim")
        ]
        attention = max(attentions, key=lambda module: module.head_dim)
        num_heads = getattr(attention, "num_heads", None)
        if num_heads is None:
            num_heads = attention.config.num_attention_heads
        num_kv_heads = num_heads // getattr(attention, "num_key_value_groups", 1)
        sizes.append(
            AttentionSizes(
                num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=attention.head_dim
            )
        )
    vision, language = sizes
    return vision, language
