"""Loss of the learned tokens, without computing the logits of all others."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pipeline.data.batches.learned_targets import TargetGroups

CHUNK = 1024
"""Tokens whose logits are in memory at a time. With a vocabulary of 152,000 they take 1.5 GB in
bf16, fp32 and as a gradient; those of a whole batch would exceed the layers of a small model."""


def summed_cross_entropy(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    groups: TargetGroups | None = None,
    *,
    logit_cap: float | None = None,
) -> torch.Tensor:
    """Return the cross-entropy summed over the tokens of each group, in nats.

    Logits beyond one chunk are recomputed in the backward pass.

    Args:
        head: Maps hidden states to logits.
        hidden: Float [num_tokens, hidden_size]; num_tokens may be 0.
        targets: int64 [num_tokens].
        groups: Group of each token; None for a single one.
        logit_cap: See `VisionLanguageModel.logit_cap`.

    Returns:
        float32 [num_groups]; every parameter of the head has a gradient, zero without a token.
    """
    numbers, num_groups = groups or TargetGroups(torch.zeros_like(targets), 1)
    if len(targets) <= CHUNK:
        return _of_chunk(head, hidden, targets, numbers, num_groups, logit_cap)
    pieces = zip(hidden.split(CHUNK), targets.split(CHUNK), numbers.split(CHUNK), strict=True)
    losses = [
        checkpoint(_of_chunk, head, *piece, num_groups, logit_cap, use_reentrant=False)
        for piece in pieces
    ]
    return torch.stack(losses).sum(0)


def _of_chunk(  # noqa: PLR0917 - `checkpoint` passes them by position
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    groups: torch.Tensor,
    num_groups: int,
    logit_cap: float | None,
) -> torch.Tensor:
    logits = head(hidden).float()
    if logit_cap is not None:
        logits = logit_cap * torch.tanh(logits / logit_cap)
    losses = functional.cross_entropy(logits, targets, reduction="none")
    if num_groups == 1:
        return losses.sum()[None]
    # A product, because adding by index is not deterministic on GPUs.
    return losses @ functional.one_hot(groups, num_groups).to(losses.dtype)
