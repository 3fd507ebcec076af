"""Activation checkpointing (arXiv:1604.06174): layers are recomputed in the backward pass.

Only a layer's inputs are kept for its backward pass, not its intermediate results. Only its
`forward` is wrapped, by torch's non-reentrant `checkpoint`. No module is inserted, so the names
of parameters do not change, by which checkpoints, adapters and exports are keyed. Hooks, such
as those by which `fully_shard` gathers a layer, stay outside and do not run again. Layers of
transformers support it (`GradientCheckpointingLayer`), but not in every family.
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
"""Attribute of a `forward`; `functools.wraps` copies it to wrappers."""


def recompute_layers(model: VisionLanguageModel) -> None:
    """Make all layers of the towers recompute their intermediate results in the backward pass.

    In eval mode, and without gradients, a layer is called unchanged. The state of random number
    generators is restored for the second run, so that dropout is the same. Where a layer has no
    dropout, they are not saved, which saves the host two copies of their state per layer.
    Losses and gradients are bit-equal.

    Args:
        model: With its adapters, before sharding; may be on "meta".
    """
    for layer in chain.from_iterable(model.towers()):
        _recompute(layer)


def may_draw(layer: nn.Module) -> bool:
    """Check whether a layer may draw random numbers in training.

    It may if any of its modules has a number above 0 whose name indicates dropout, of attention
    weights or paths, too.
    """
    return any(
        isinstance(value, (int, float)) and value > 0
        for module in layer.modules()
        for name, value in _numbers_of(module)
        if "drop" in name
    )


def _numbers_of(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield numeric attributes, those of a config that the module keeps, and a dropout rate."""
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
        # torch saves generators only of these arguments' devices, not of keyword arguments.
        assert isinstance(args[0], torch.Tensor)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=draws, **kwargs)

    setattr(recomputed, _MARK, True)
    layer.forward = recomputed


def count_recomputed(model: VisionLanguageModel) -> int:
    """Return how many layers of the towers are recomputed, whatever wraps them."""
    layers: list[nn.Module] = list(chain.from_iterable(model.towers()))
    return sum(hasattr(layer.forward, _MARK) for layer in layers)
