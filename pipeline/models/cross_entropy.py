"""Loss of the learned tokens, without computing the logits of all others."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CHUNK = 1024
"""Tokens whose logits are in memory at a time. With a vocabulary of 152,000 they take 1.5 GB in
bf16, fp32 and as a gradient; those of a whole batch would exceed the layers of a small model."""


def summed_cross_entropy(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    levels: torch.Tensor | None = None,
    num_levels: int = 1,
    *,
    logit_cap: float | None = None,
) -> torch.Tensor:
    """Return the cross-entropy summed over the tokens of each level, in nats.

    Logits beyond one chunk are recomputed in the backward pass.

    Args:
        head: Maps hidden states to logits.
        hidden: Float [num_tokens, hidden_size]; num_tokens may be 0.
        targets: int64 [num_tokens].
        levels: int64 [num_tokens]; None if there is one level.
        num_levels: Number of levels.
        logit_cap: See `VisionLanguageModel.logit_cap`.

    Returns:
        float32 [num_levels]; every parameter of the head has a gradient, zero without a token.
    """
    if levels is None:
        levels = torch.zeros_like(targets)
    if len(targets) <= CHUNK:
        return _of_chunk(head, hidden, targets, levels, num_levels, logit_cap)
    pieces = zip(hidden.split(CHUNK), targets.split(CHUNK), levels.split(CHUNK), strict=True)
    losses = [
        checkpoint(_of_chunk, head, *piece, num_levels, logit_cap, use_reentrant=False)
        for piece in pieces
    ]
    return torch.stack(losses).sum(0)


def _of_chunk(  # noqa: PLR0917 - `checkpoint` passes them by position
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    levels: torch.Tensor,
    num_levels: int,
    logit_cap: float | None,
) -> torch.Tensor:
    logits = head(hidden).float()
    if logit_cap is not None:
        logits = logit_cap * torch.tanh(logits / logit_cap)
    losses = functional.cross_entropy(logits, targets, reduction="none")
    if num_levels == 1:
        return losses.sum()[None]
    # A product, because adding by index is not deterministic on GPUs.
    return losses @ functional.one_hot(levels, num_levels).to(losses.dtype)
