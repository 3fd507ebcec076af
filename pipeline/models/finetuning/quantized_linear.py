"""Layers in 4 bits (QLoRA and NF4, arXiv:2305.14314), by the kernels of bitsandbytes.

bitsandbytes' own layer is not used. It keeps the scales of its blocks in an attribute of the
weight, which sharding replaces. It also changes state when it computes: its bias is cast
permanently, and on CPUs with bfloat16 instructions the weights are repacked in eval mode. Here
scales are buffers, which are moved, sent and compared like all buffers, and computing changes
nothing.

It is imported on demand: bitsandbytes takes 1.5 s to load, and more on a network file
system, which every rank of a training without 4 bits would spend at its start.
"""

from __future__ import annotations

import fnmatch
from typing import Any

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState, dequantize_4bit, quantize_4bit
from torch import nn
from transformers import PreTrainedConfig

from pipeline.models.computation.experts import is_experts
from pipeline.models.finetuning.packed_linear import STORAGE_DTYPES, PackedLinear, quantized_layers
from pipeline.models.finetuning.target_layers import find_targets, refuse_tied
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import QuantizeConfig

BLOCK_SIZE = 64
"""Weights that share a scale."""
NESTED_BLOCK_SIZE = 256
"""Scales that share a second-level scale; bitsandbytes supports no other number."""
_NUM_CODES, _NUM_NESTED_CODES = 16, 256


class QuantizedLinear(PackedLinear, bnb.nn.Linear4bit):
    """Frozen linear layer with a packed weight; peft adapts it like its base class."""

    absmax: torch.Tensor
    code: torch.Tensor
    offset: torch.Tensor
    nested_absmax: torch.Tensor
    nested_code: torch.Tensor

    def __init__(self, layer: nn.Linear, config: QuantizeConfig) -> None:
        """Allocate the layer on the device of `layer`'s weight; `take` quantises it."""
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
        # Attributes that peft reads from such a weight when adapters are added.
        self.weight.compress_statistics = config.double  # type: ignore[attr-defined]
        self.weight.quant_type = config.kind  # type: ignore[attr-defined]
        for name, (shape, dtype) in self._scales().items():
            empty = torch.empty(shape, dtype=dtype, device=device)
            self.register_buffer(name, empty, persistent=False)

    def _scales(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return shape and dtype of the scales of the weight's blocks."""
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
        packed, quant_state = quantize_4bit(
            weight.to(device).float(),
            blocksize=BLOCK_SIZE,
            compress_statistics=self.is_double,
            quant_type=self.kind,
            quant_storage=self.quant_storage,
        )
        self.weight.copy_(packed)
        self.absmax.copy_(quant_state.absmax)
        self.code.copy_(quant_state.code)
        if self.is_double:
            self.offset.copy_(quant_state.offset)
            self.nested_absmax.copy_(quant_state.state2.absmax)
            self.nested_code.copy_(quant_state.state2.code)

    def state(self, dtype: torch.dtype) -> QuantState:
        """Return bitsandbytes' state of the weight for a result of `dtype`."""
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
        """Compute float [..., in_features] to [..., out_features] of the same dtype."""
        dtype = self.compute_dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        output = bnb.matmul_4bit(x.to(dtype), self.weight, self.state(dtype), bias=bias)
        return output.to(x.dtype)

    def dequantize(self, packed: torch.Tensor) -> torch.Tensor:
        """Return float32 [out_features, in_features]: the dequantised base weight.

        Args:
            packed: This layer's full weight.
        """
        state = self.state(torch.float32)
        state.to(packed.device)
        return dequantize_4bit(packed, state)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:  # type: ignore[no-untyped-def]
        """Omit the scales, which bitsandbytes would add while weights are not sharded."""
        nn.Module._save_to_state_dict(self, destination, prefix, keep_vars)  # noqa: SLF001


def _refuse_experts(root: nn.Module) -> None:
    """Refuse a model most of whose weights would stay in fp32.

    Raises:
        StageConfigError: it is a mixture of experts.
    """
    experts = [module for module in root.modules() if is_experts(module)]
    if experts:
        num_weights = sum(weight.numel() for module in experts for weight in module.parameters())
        message = (
            f"quantize: {num_weights:,} weights of the model are those of experts, which are no "
            "linear layers and cannot be stored in 4 bits: leave `quantize` out"
        )
        raise StageConfigError(message)


def quantize_model(
    model: VisionLanguageModel, config: QuantizeConfig, device: torch.device
) -> None:
    """Replace the linear layers that the config names, one by one; the rest becomes fp32.

    Args:
        model: On the CPU, in any precision, or on "meta"; before adapters are added.
        config: Layers and method.
        device: Device of the computation. The last bits may depend on its type.

    Raises:
        StageConfigError: a pattern matches no linear layer, or matches the embeddings; or the
            model has experts.
    """
    root: Any = model.root()
    _refuse_experts(root)
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
    # Allocate all of them before computing the first: small allocations between the large
    # temporary tensors would fragment the heap.
    made = [QuantizedLinear(layer, config) for layer in layers]
    for name, layer in zip(names, made, strict=True):
        owner, _, own_name = name.rpartition(".")
        setattr(root.get_submodule(owner), own_name, layer)
    for layer in reversed(made):
        taken = layers.pop()
        if not taken.weight.is_meta:
            layer.take(taken.weight, device)
    # All the rest becomes fp32, and so does the config of transformers, which exports use.
    quantized = {id(layer.weight) for _, layer in quantized_layers(model)}
    for parameter in model.parameters():
        if id(parameter) not in quantized:
            parameter.data = parameter.data.float()
    exported: Any = getattr(root, "config", None)
    if isinstance(exported, PreTrainedConfig):
        for part in (exported, *(getattr(exported, n, None) for n in exported.sub_configs)):
            if part is not None:
                part.dtype = torch.float32
