"""Residual stream in fp32, while autocast multiplies matrices in fp16.

Each layer adds its output to its input. In models that were trained in bf16, such as the Qwen2
family, these sums exceed the range of fp16 (65,504; QwenLM/Qwen3#868, ms-swift#5580), though
the results of a single layer do not. Autocast adds in the wider of two types. So an fp32 input
for the first layer of each tower is enough: all later sums are in fp32.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError


def keep_residual_in_fp32(model: VisionLanguageModel, device: torch.device) -> None:
    """Cast the input of the first layer of each tower to fp32 wherever autocast is on.

    Without autocast the model computes as before.

    Args:
        model: Before sharding; may be on "meta".
        device: Device of the computation.

    Raises:
        StageConfigError: layers multiply the sum itself, which rounds it to fp16 (Gemma 4 with
            embeddings per layer).
    """
    if getattr(model.text_config, "hidden_size_per_layer_input", None):
        message = (
            "precision is fp16, but each layer of this language model multiplies the sum of all "
            "layers before it, which may exceed the range of fp16 (65,504): set `precision: bf16` "
            "or `fp32`"
        )
        raise StageConfigError(message)
    for tower in model.towers():
        tower[0].register_forward_pre_hook(_cast_first_input)
    if device.type == "cpu":
        for module in model.modules():
            if type(module) is nn.LayerNorm:
                module.forward = functools.partial(_layer_norm, module)  # type: ignore[method-assign]


def _cast_first_input(_layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    first = args[0]
    if not torch.is_autocast_enabled(first.device.type):
        return args
    return (first.float(), *args[1:])


def _layer_norm(module: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    """Compute like autocast on a GPU; PyTorch on a CPU refuses fp32 input with fp16 weights."""
    if not torch.is_autocast_enabled(x.device.type):
        return functional.layer_norm(
            x, module.normalized_shape, module.weight, module.bias, module.eps
        )
    weight = None if module.weight is None else module.weight.float()
    bias = None if module.bias is None else module.bias.float()
    return functional.layer_norm(x.float(), module.normalized_shape, weight, bias, module.eps)
