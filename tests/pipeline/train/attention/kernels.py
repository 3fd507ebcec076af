"""Attention of a model, and the kernels that were found for it."""

from __future__ import annotations

import dataclasses

import torch

from pipeline.models.computation.attention_sizes import AttentionSizes
from pipeline.train.attention.kernel_selection import AttentionFound, AttentionUse

USE = AttentionUse(
    tower="language",
    sizes=AttentionSizes(num_heads=16, num_kv_heads=2, head_dim=128),
    dtype=torch.float16,
    is_causal=True,
    has_mask=False,
)


def found(kernel: str, otherwise: str, **changes) -> AttentionFound:
    use = dataclasses.replace(USE, **changes)
    return AttentionFound(use=use, kernel=kernel, kernel_otherwise=otherwise)
