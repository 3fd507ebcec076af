"""The loss of supervised tokens, without the logits of all others."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CHUNK = 1024
"""Tokens whose logits are held at a time. With a vocabulary of 152,000 they take 1.5 GB in bf16,
fp32 and as a gradient; all of a batch's would outweigh the layers of a small model."""


def summed_cross_entropy(
    head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Summed over the tokens, in nats; logits beyond one chunk are computed again in the backward.

    Args:
        head: From hidden states to logits.
        hidden: Float [num_tokens, hidden_size]; num_tokens may be 0.
        targets: int64 [num_tokens].

    Returns:
        float32 scalar; every parameter of the head has a gradient, zero without a token.
    """
    if len(targets) <= CHUNK:
        return _of_chunk(head, hidden, targets)
    pieces = zip(hidden.split(CHUNK), targets.split(CHUNK), strict=True)
    losses = [checkpoint(_of_chunk, head, *piece, use_reentrant=False) for piece in pieces]
    return torch.stack(losses).sum()


def _of_chunk(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(head(hidden).float(), targets, reduction="sum")
