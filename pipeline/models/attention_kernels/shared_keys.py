"""Attention that repeats shared keys first, for cards whose kernels need it.

Several heads of a language model may share keys and values. Without a mask, transformers passes
them to PyTorch unrepeated (`enable_gqa`). Of the fused kernels only FlashAttention can read
that. The memory-efficient one, the only one of a V100, cannot, which leaves the `math` kernel,
and that stores every score. With keys repeated for each head it can.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from pipeline.models.attention_kernels.packed_rows import attend_rows_by

_UNSHARED = nn.Identity()
"""Stands for a module without shared heads."""


def repeat_shared_keys(*, on: bool) -> None:
    """Make attention without a mask repeat shared keys in this process; off: like transformers."""
    attend_rows_by(_attend if on else sdpa_attention_forward)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Implement `sdpa_attention_forward`: query [rows, heads, length, size], fewer key heads."""
    num_sharing = getattr(module, "num_key_value_groups", 1)
    if attention_mask is None and num_sharing > 1:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        module, key, value = _UNSHARED, repeat_kv(key, num_sharing), repeat_kv(value, num_sharing)
    options = {"is_causal": is_causal, **options}
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
