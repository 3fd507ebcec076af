"""`torch.compile` of the layers of the towers, one by one (regional compilation).

All layers of a kind share what is compiled for the first of them. Their `forward` alone is
compiled: names of parameters stay what they are, and hooks, such as those by which `fully_shard`
gathers a layer, stay outside and break nothing apart.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.utils._triton import has_triton

from pipeline.library_versions import compile_whole
from pipeline.models.interface import VisionLanguageModel
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.compile import CompileConfig

_MARK = "is_compiled"
"""Of a `forward`; what is wrapped around it by `functools.wraps` has it, too."""
USUAL_VARIANTS = 8
"""Compilations that two kinds of layers may need in one phase: with and without a gradient of what
goes in, for one row and for several. torch's own limit, for all phases, is as many."""
MAX_VARIANTS = 64
"""More fail the attempt, because it goes on without end; a warning came long before."""
_REMEDY = "leave `compile` out"
_CALLED = {"vision": "vision tower", "language": "language model"}


def compile_layers(model: VisionLanguageModel, config: CompileConfig, device: torch.device) -> None:
    """Have all layers of the towers compiled when they are first called in training.

    In training alone: in eval mode, and without gradients, a layer is called as it was, because
    generation has other shapes at each token. Lengths of rows are symbols from the first
    compilation on, so that no length is compiled for anew. A layer is compiled whole or not at all.

    Args:
        model: Before it is spread, and after `recompute_layers`; may be on "meta".
        config: By what.
        device: Of the training.

    Raises:
        StageConfigError: nothing can be compiled here, or not this tower; and at a call, a layer
            cannot be.
    """
    check_can_compile(config, device)
    check_towers(model, config)
    # It cuts what is compiled where buckets of gradients end, for the sake of overlapping their
    # reduction with the backward pass: layers are small enough for that as they are.
    torch._dynamo.config.optimize_ddp = False  # noqa: SLF001 - no public way
    for layer in chosen_layers(model, config):
        _compile(layer, config)


def chosen_layers(model: VisionLanguageModel, config: CompileConfig) -> list[nn.Module]:
    """Those of the towers that the config names."""
    by_name = dict(zip(("vision", "language"), model.towers(), strict=True))
    return [layer for name in config.towers for layer in by_name[name]]


def check_can_compile(config: CompileConfig, device: torch.device) -> None:
    """See that nothing in the environment stands against it.

    Raises:
        StageConfigError: it is switched off there, or Triton is missing.
    """
    if torch._dynamo.config.disable:  # noqa: SLF001 - no public way
        message = (
            "compile is given, and TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE in the environment "
            f"switches it off: unset it, or {_REMEDY}"
        )
        raise StageConfigError(message)
    if config.backend == "inductor" and device.type == "cuda" and not has_triton():
        message = (
            f"compile.backend is inductor, and there is no Triton for {device}: install it (the "
            f"CUDA builds of torch bring it), or {_REMEDY}"
        )
        raise StageConfigError(message)


def check_towers(model: VisionLanguageModel, config: CompileConfig) -> None:
    """See that layers of the towers that the config names can be compiled, as far as is known.

    Raises:
        StageConfigError: those of the vision tower cannot.
    """
    if "vision" in config.towers and model.why_vision_not_compiled:
        message = (
            f"compile.towers is [{', '.join(config.towers)}], and this model's vision tower cannot "
            f"be compiled: {model.why_vision_not_compiled}; leave `vision` out of compile.towers"
        )
        raise StageConfigError(message)


def describe_compiling(model: VisionLanguageModel, config: CompileConfig) -> str:
    """Which layers are compiled, and why others are not, for the log."""
    by_name = dict(zip(("vision", "language"), model.towers(), strict=True))
    numbers = {name: len(by_name[name]) for name in config.towers}
    counts = [
        f"{number} layer{'' if number == 1 else 's'} of the {_CALLED[name]}"
        for name, number in numbers.items()
    ]
    said = f"{config.backend} compiles {' and '.join(counts)} when first called"
    if "vision" in config.towers:
        return said
    why = model.why_vision_not_compiled or "compile.towers does not name it"
    return f"{said}; the vision tower is not compiled: {why}"


def _compile(layer: Any, config: CompileConfig) -> None:
    forward = layer.forward
    assert not hasattr(forward, _MARK)
    fast = compile_whole(forward, backend=config.backend, max_variants=MAX_VARIANTS)

    @functools.wraps(forward)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        try:
            return fast(*args, **kwargs)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            message = (
                f"compile: layers {type(layer).__name__} cannot be compiled; leave their tower out "
                f"of compile.towers, or {_REMEDY}: {error}"
            )
            raise StageConfigError(message) from error

    setattr(compiled, _MARK, True)
    layer.forward = compiled


def count_compiled(model: VisionLanguageModel) -> int:
    """How many layers of the towers are called compiled."""
    layers: list[nn.Module] = list(chain.from_iterable(model.towers()))
    return sum(hasattr(layer.forward, _MARK) for layer in layers)
