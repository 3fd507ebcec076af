"""Linear layers in 4 bits (NF4, arXiv:2305.14314), by the kernels of bitsandbytes.

bitsandbytes' own layer keeps the scales of its blocks in an attribute of the weight, which sharding
replaces, and changes what it holds as it computes: its bias is cast for good, and on CPUs with
bfloat16 instructions the weights are packed anew in eval mode. Here scales are buffers, which are
moved, sent and compared as all buffers are, and nothing is changed by computing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState, dequantize_4bit, quantize_4bit
from torch import nn
from transformers import PreTrainedConfig

from pipeline.models.interface import VisionLanguageModel
from pipeline.models.linear_layers import find_targets, refuse_tied
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.quantize import QuantizeConfig

BLOCK_SIZE = 64
"""Weights that share a scale."""
NESTED_BLOCK_SIZE = 256
"""Scales that share a scale of their own; bitsandbytes knows no other."""
_NUM_CODES, _NUM_NESTED_CODES = 16, 256
STORAGE_DTYPES: Mapping[str, torch.dtype] = {
    "uint8": torch.uint8,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class QuantizedLinear(bnb.nn.Linear4bit):
    """A frozen linear layer whose weight is packed; peft adapts it as it does its base class."""

    def __init__(self, layer: nn.Linear, config: QuantizeConfig) -> None:
        """Make room for `layer`, where its weight lies; `take` quantises it."""
        super().__init__(
            layer.in_features,
            layer.out_features,
            bias=False,
            compute_dtype=torch.float32,
            compress_statistics=config.double,
            quant_type=config.kind,
            quant_storage=STORAGE_DTYPES[config.storage],
            device="meta",
        )
        self.bias = layer.bias
        self.kind, self.is_double = config.kind, config.double
        device = layer.weight.device
        num_numbers = (self.num_weights + 1) // (2 * self.quant_storage.itemsize)
        packed = torch.empty((num_numbers, 1), dtype=self.quant_storage, device=device)
        self.weight = nn.Parameter(packed, requires_grad=False)
        # What peft asks of a weight of this kind, when adapters are added.
        self.weight.compress_statistics = config.double  # type: ignore[attr-defined]
        self.weight.quant_type = config.kind  # type: ignore[attr-defined]
        for name, (shape, dtype) in self._scales().items():
            empty = torch.empty(shape, dtype=dtype, device=device)
            self.register_buffer(name, empty, persistent=False)

    def _scales(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of what the weight's blocks are scaled by."""
        num_blocks = -(-self.num_weights // BLOCK_SIZE)
        whole = torch.float32
        if not self.is_double:
            return {"absmax": ((num_blocks,), whole), "code": ((_NUM_CODES,), whole)}
        return {
            "absmax": ((num_blocks,), torch.uint8),
            "code": ((_NUM_CODES,), whole),
            "offset": ((), whole),
            "nested_absmax": ((-(-num_blocks // NESTED_BLOCK_SIZE),), whole),
            "nested_code": ((_NUM_NESTED_CODES,), whole),
        }

    @torch.no_grad()
    def take(self, weight: torch.Tensor, device: torch.device) -> None:
        """Quantise a float matrix [out_features, in_features] on `device`, into this layer."""
        packed, found = quantize_4bit(
            weight.to(device).float(),
            blocksize=BLOCK_SIZE,
            compress_statistics=self.is_double,
            quant_type=self.kind,
            quant_storage=self.quant_storage,
        )
        self.weight.copy_(packed)
        self.absmax.copy_(found.absmax)
        self.code.copy_(found.code)
        if self.is_double:
            self.offset.copy_(found.offset)
            self.nested_absmax.copy_(found.state2.absmax)
            self.nested_code.copy_(found.state2.code)

    @property
    def num_weights(self) -> int:
        """Of the matrix; the packed tensor has fewer numbers."""
        return self.in_features * self.out_features

    def state(self, dtype: torch.dtype) -> QuantState:
        """What bitsandbytes needs to know of the weight, to give it as `dtype`."""
        nested = None
        if self.is_double:
            nested = QuantState(
                absmax=self.nested_absmax,
                code=self.nested_code,
                blocksize=NESTED_BLOCK_SIZE,
                dtype=torch.float32,
            )
        return QuantState(
            absmax=self.absmax,
            shape=torch.Size((self.out_features, self.in_features)),
            code=self.code,
            blocksize=BLOCK_SIZE,
            quant_type=self.kind,
            dtype=dtype,
            offset=self.offset if self.is_double else None,
            state2=nested,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float [..., in_features] to [..., out_features] of the same dtype."""
        dtype = self.compute_dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        found = bnb.matmul_4bit(x.to(dtype), self.weight, self.state(dtype), bias=bias)
        return found.to(x.dtype)

    def dequantize(self, packed: torch.Tensor) -> torch.Tensor:
        """Float32 [out_features, in_features]: the matrix that was trained beside.

        Args:
            packed: This layer's weight, whole.
        """
        state = self.state(torch.float32)
        state.to(packed.device)
        return dequantize_4bit(packed, state)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:  # type: ignore[no-untyped-def]
        """Without the scales, which bitsandbytes would add as long as weights are not sharded."""
        nn.Module._save_to_state_dict(self, destination, prefix, keep_vars)  # noqa: SLF001


def quantize_model(
    model: VisionLanguageModel, config: QuantizeConfig, device: torch.device
) -> None:
    """Replace the linear layers that the config names, one after the other; the rest is fp32.

    Args:
        model: On the CPU, in any precision, or on "meta"; before adapters are added.
        config: Which layers, and how.
        device: Where it is computed. The last bits may depend on its type.

    Raises:
        StageConfigError: a pattern matches no linear layer, or one that is the embeddings.
    """
    root: Any = model.root()
    names = find_targets(model, config.targets, "quantize.targets", only_used=False)
    for pattern in config.skip:
        if not fnmatch.filter(names, pattern):
            message = (
                f"quantize.skip: {pattern!r} matches none of the layers that quantize.targets "
                f"names, such as {', '.join(names[:3])}"
            )
            raise StageConfigError(message)
        names = [name for name in names if not fnmatch.fnmatchcase(name, pattern)]
    refuse_tied(model, names, "quantize.targets")
    layers = [root.get_submodule(name) for name in names]
    # Room for all of them before the first is computed: what lies between the large tensors that
    # come and go would keep the heap from taking these in again.
    made = [QuantizedLinear(layer, config) for layer in layers]
    for name, layer in zip(names, made, strict=True):
        owner, _, own_name = name.rpartition(".")
        setattr(root.get_submodule(owner), own_name, layer)
    for layer in reversed(made):
        taken = layers.pop()
        if not taken.weight.is_meta:
            layer.take(taken.weight, device)
    _make_fp32(model)


def _make_fp32(model: VisionLanguageModel) -> None:
    """What is not packed; a config of transformers says so, too, which exports are loaded by."""
    quantized = {id(layer.weight) for _, layer in quantized_layers(model)}
    for parameter in model.parameters():
        if id(parameter) not in quantized:
            parameter.data = parameter.data.float()
    config: Any = getattr(model.root(), "config", None)
    if isinstance(config, PreTrainedConfig):
        for one in (config, *(getattr(config, name, None) for name in config.sub_configs)):
            if one is not None:
                one.dtype = torch.float32


def quantized_layers(model: nn.Module) -> Iterator[tuple[str, QuantizedLinear]]:
    """By their names in the model."""
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            yield name, module


def quantized_names(model: nn.Module) -> frozenset[str]:
    """Names of the parameters that are packed."""
    return frozenset(f"{name}.weight" for name, _ in quantized_layers(model))


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Have quantised layers give and take `dtype`."""
    for _, layer in quantized_layers(model):
        layer.compute_dtype = dtype


def dequantize_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The same weights with float32 matrices in the place of packed ones; all of them whole."""
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(model)}
    return {
        name: layers[name].dequantize(value) if name in layers else value
        for name, value in weights.items()
    }
