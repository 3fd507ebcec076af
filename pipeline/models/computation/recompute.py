"""Activation checkpointing (arXiv:1604.06174): layers are recomputed in the backward pass.

Only a layer's inputs are kept for its backward pass, not its intermediate results. Only its
`forward` is wrapped, by torch's non-reentrant `checkpoint`. No module is inserted, so the names
of parameters do not change, by which checkpoints, adapters and exports are keyed. Hooks, such
as those by which `fully_shard` gathers a layer, stay outside and do not run again. Layers of
transformers support it (`GradientCheckpointingLayer`), but not in every family.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pipeline.models.vision_language import VisionLanguageModel

_RECOMPUTED_MARK = "is_recomputed"
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

    It may if any of its modules, or a config that the module keeps, has a number above 0 whose
    name indicates dropout, of attention weights or paths, too.
    """
    for module in layer.modules():
        config = getattr(module, "config", None) or object
        values = [*vars(module).items(), *vars(config).items()]
        if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - no public base
            values.append(("dropout", module.p))
        for name, value in values:
            if "drop" in name and isinstance(value, (int, float)) and value > 0:
                return True
    return False


def _recompute(layer: Any) -> None:
    forward, draws = layer.forward, may_draw(layer)
    assert not hasattr(forward, _RECOMPUTED_MARK)

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        # torch saves generators only of these arguments' devices, not of keyword arguments.
        assert isinstance(args[0], torch.Tensor)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=draws, **kwargs)

    setattr(recomputed, _RECOMPUTED_MARK, True)
    layer.forward = recomputed


def count_recomputed(model: VisionLanguageModel) -> int:
    """Return how many layers of the towers are recomputed, whatever wraps them."""
    layers = chain.from_iterable(model.towers())
    return sum(hasattr(layer.forward, _RECOMPUTED_MARK) for layer in layers)
