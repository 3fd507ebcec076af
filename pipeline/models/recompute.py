"""Activation checkpointing (arXiv:1604.06174): layers are computed again in the backward pass.

What a layer computes on its way is not kept for its backward pass; what goes into it is. Its
`forward` alone is wrapped, by torch's own non-reentrant `checkpoint`: no module comes between, so
that names of parameters stay what checkpoints, adapters and exports are keyed by, and hooks, such
as those by which `fully_shard` gathers a layer, stay outside and are not run again. Layers of
transformers can do the same by themselves (`GradientCheckpointingLayer`), but not those of every
family.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pipeline.models.interface import VisionLanguageModel

_MARK = "is_recomputed"
"""Of a `forward`; what is wrapped around it by `functools.wraps` has it, too."""


def recompute_layers(model: VisionLanguageModel) -> None:
    """Have all layers of the towers compute again in the backward pass what they need there.

    In training alone: in eval mode, and without gradients, a layer is called as it was. The
    generators of random numbers begin the second time where they began the first, so that dropout
    leaves out the same. Losses and gradients are the same bits.

    Args:
        model: Before it is spread; may be on "meta".
    """
    for layer in chain.from_iterable(model.towers()):
        _recompute(layer)


def _recompute(layer: Any) -> None:
    forward = layer.forward
    assert not hasattr(forward, _MARK)

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        # torch keeps the generators of the devices of these alone, not of keyword arguments.
        assert isinstance(args[0], torch.Tensor)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    setattr(recomputed, _MARK, True)
    layer.forward = recomputed


def count_recomputed(model: VisionLanguageModel) -> int:
    """How many layers of the towers are computed again, whoever has wrapped them since."""
    layers: list[nn.Module] = list(chain.from_iterable(model.towers()))
    return sum(hasattr(layer.forward, _MARK) for layer in layers)
