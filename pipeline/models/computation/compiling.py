"""`torch.compile` of the layers of the towers, one by one (regional compilation).

All layers of a kind share the compilation of the first. Only their `forward` is compiled. So
parameter names do not change, and hooks, such as those by which `fully_shard` gathers a layer,
stay outside and cause no graph breaks.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.utils._triton import has_triton

from pipeline.models.computation.torch_versions import compile_whole
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import CompileConfig

_MARK = "is_compiled"
"""Attribute of a `forward`; `functools.wraps` copies it to wrappers."""


USUAL_VARIANTS = 8
"""Compilations that two kinds of layers may need in one phase: with and without a gradient of
the input, for one row and for several. torch's own limit, for all phases, is the same."""


MAX_VARIANTS = 64
"""More fail the attempt, because compilation would never end; a warning came long before."""


_REMEDY = "leave `compile` out"


def compile_layers(model: VisionLanguageModel, config: CompileConfig, device: torch.device) -> None:
    """Compile all layers of the towers at their first call in training.

    In eval mode, and without gradients, a layer is not compiled, because generation has new
    shapes at each token. Lengths of rows are symbolic from the first compilation on, so a new
    length causes no compilation. A layer is compiled as a whole or not at all.

    Args:
        model: Before sharding, and after `recompute_layers`; may be on "meta".
        config: Backend and towers.
        device: Device of the training.

    Raises:
        StageConfigError: compiling is impossible here, or for this tower; or, at a call, a
            layer cannot be compiled.
    """
    check_can_compile(config, device)
    check_towers(model, config)
    # This would split the graph at the ends of gradient buckets, to overlap their reduction with
    # the backward pass; the layers are small enough already.
    torch._dynamo.config.optimize_ddp = False  # noqa: SLF001 - no public way
    for layer in chosen_layers(model, config):
        _compile(layer, config)


def chosen_layers(model: VisionLanguageModel, config: CompileConfig) -> list[nn.Module]:
    """Return the layers of the towers that the config names."""
    vision, language = model.towers()
    layers: list[nn.Module] = []
    for name in config.towers:
        layers += vision if name == "vision" else language
    return layers


def check_can_compile(config: CompileConfig, device: torch.device) -> None:
    """Check that the environment allows compiling.

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
            f"compile.backend is inductor, but Triton for {device} is missing: install it (the "
            f"CUDA builds of torch include it), or {_REMEDY}"
        )
        raise StageConfigError(message)


def check_towers(model: VisionLanguageModel, config: CompileConfig) -> None:
    """Check that layers of the towers in the config can be compiled, as far as is known.

    Raises:
        StageConfigError: those of one cannot.
    """
    if "language" in config.towers and model.why_language_not_compiled:
        message = (
            f"compile.towers is [{', '.join(config.towers)}], but this model's language model "
            f"cannot be compiled: {model.why_language_not_compiled}; {_REMEDY}"
        )
        raise StageConfigError(message)
    if "vision" in config.towers and model.why_vision_not_compiled:
        message = (
            f"compile.towers is [{', '.join(config.towers)}], but this model's vision tower "
            f"cannot be compiled: {model.why_vision_not_compiled}; leave `vision` out of "
            "compile.towers"
        )
        raise StageConfigError(message)


def describe_compiling(model: VisionLanguageModel, config: CompileConfig) -> str:
    """Describe which layers are compiled, and why others are not, for the log."""
    vision, language = model.towers()
    counts = []
    for name in config.towers:
        number = len(vision if name == "vision" else language)
        tower = "vision tower" if name == "vision" else "language model"
        counts.append(f"{number} layer{'' if number == 1 else 's'} of the {tower}")
    message = f"{config.backend} compiles {' and '.join(counts)} when first called"
    if "vision" in config.towers:
        return message
    why = model.why_vision_not_compiled or "compile.towers does not name it"
    return f"{message}; the vision tower is not compiled: {why}"


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
    """Return how many layers of the towers are compiled."""
    return sum(hasattr(layer.forward, _MARK) for layer in chain.from_iterable(model.towers()))
