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
from collections.abc import Iterator
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
    leaves out the same; where a layer has no dropout, they are left alone, which saves the host two
    copies of their state a layer. Losses and gradients are the same bits.

    Args:
        model: With its adapters, before it is spread; may be on "meta".
    """
    for layer in chain.from_iterable(model.towers()):
        _recompute(layer)


def may_draw(layer: nn.Module) -> bool:
    """Check whether a layer may draw random numbers in training.

    It may if any of its modules has a number above 0 whose name says that something is dropped:
    dropout of any kind, of attention weights, or of paths.
    """
    return any(
        isinstance(value, (int, float)) and value > 0
        for module in layer.modules()
        for name, value in _numbers_of(module)
        if "drop" in name
    )


def _numbers_of(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Attributes, those of a config that the module keeps, and the rate of a dropout module."""
    yield from vars(module).items()
    yield from vars(getattr(module, "config", None) or object).items()
    if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - no public base
        yield "dropout", module.p


def _recompute(layer: Any) -> None:
    forward, draws = layer.forward, may_draw(layer)
    assert not hasattr(forward, _MARK)

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        # torch keeps the generators of the devices of these alone, not of keyword arguments.
        assert isinstance(args[0], torch.Tensor)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=draws, **kwargs)

    setattr(recomputed, _MARK, True)
    layer.forward = recomputed


def count_recomputed(model: VisionLanguageModel) -> int:
    """How many layers of the towers are computed again, whoever has wrapped them since."""
    layers: list[nn.Module] = list(chain.from_iterable(model.towers()))
    return sum(hasattr(layer.forward, _MARK) for layer in layers)
