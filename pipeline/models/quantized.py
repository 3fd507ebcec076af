"""Linear layers in 4 bits (NF4, arXiv:2305.14314), by the kernels of bitsandbytes.

bitsandbytes' own layer keeps the scales of its blocks in an attribute of the weight, which sharding
replaces, and changes what it holds as it computes: its bias is cast for good, and on CPUs with
bfloat16 instructions the weights are packed anew in eval mode. Here scales are buffers, which are
moved, sent and compared as all buffers are, and nothing is changed by computing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState, dequantize_4bit, quantize_4bit
from torch import nn

from pipeline.models.interface import VisionLanguageModel
from pipeline.models.linear_layers import find_targets
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

    def __init__(self, layer: nn.Linear, config: QuantizeConfig, device: torch.device) -> None:
        """Quantise `layer` on `device`; of one on "meta" only shapes are made."""
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
        is_unloaded = layer.weight.is_meta
        packed, state = self._shapes() if is_unloaded else self._quantize(layer.weight, device)
        self.weight = nn.Parameter(packed, requires_grad=False)
        # What peft asks of a weight of this kind, when adapters are added.
        self.weight.compress_statistics = config.double  # type: ignore[attr-defined]
        self.weight.quant_type = config.kind  # type: ignore[attr-defined]
        for name, tensor in state.items():
            self.register_buffer(name, tensor, persistent=False)

    def _shapes(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """As `_quantize`, without values."""
        num_blocks = -(-self.num_weights // BLOCK_SIZE)

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        packed = empty(
            (self.num_weights + 1) // (2 * self.quant_storage.itemsize),
            1,
            dtype=self.quant_storage,
        )
        if not self.is_double:
            return packed, {"absmax": empty(num_blocks), "code": empty(_NUM_CODES)}
        return packed, {
            "absmax": empty(num_blocks, dtype=torch.uint8),
            "code": empty(_NUM_CODES),
            "offset": empty(),
            "nested_absmax": empty(-(-num_blocks // NESTED_BLOCK_SIZE)),
            "nested_code": empty(_NUM_NESTED_CODES),
        }

    def _quantize(
        self, weight: torch.Tensor, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The packed weight and what its blocks are scaled by, on the CPU."""
        packed, found = quantize_4bit(
            weight.detach().to(device).float(),
            blocksize=BLOCK_SIZE,
            compress_statistics=self.is_double,
            quant_type=self.kind,
            quant_storage=self.quant_storage,
        )
        state = {"absmax": found.absmax, "code": found.code}
        if found.nested:
            nested = found.state2
            state |= {
                "offset": found.offset,
                "nested_absmax": nested.absmax,
                "nested_code": nested.code,
            }
        # Copies: codes are one tensor of all layers to bitsandbytes.
        return packed.cpu(), {name: tensor.cpu().clone() for name, tensor in state.items()}

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
        StageConfigError: a pattern matches no linear layer.
    """
    root = model.root()
    names = find_targets(model, config.targets, "quantize.targets")
    for pattern in config.skip:
        if not fnmatch.filter(names, pattern):
            message = (
                f"quantize.skip: {pattern!r} matches none of the layers that quantize.targets "
                f"names, such as {', '.join(names[:3])}"
            )
            raise StageConfigError(message)
        names = [name for name in names if not fnmatch.fnmatchcase(name, pattern)]
    for name in names:
        owner, _, own_name = name.rpartition(".")
        layer = root.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        setattr(root.get_submodule(owner), own_name, QuantizedLinear(layer, config, device))
    quantized = {id(layer.weight) for _, layer in quantized_layers(model)}
    for parameter in model.parameters():
        if id(parameter) not in quantized:
            parameter.data = parameter.data.float()


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
