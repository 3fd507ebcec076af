"""Sizes of a model's tensors, read from a model without weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from pipeline.models.finetuning.packed_linear import PackedLinear
from pipeline.models.vision_language import VisionLanguageModel


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSizes:
    """Sizes of one parameter."""

    name: str
    shape: tuple[int, ...]
    """Stored shape: packed if it is in 4 bits."""
    itemsize: int
    """Bytes of a number."""
    is_packed: bool
    """True if it is in 4 bits, and so never cast."""
    is_multiplied: bool
    """True if it is the matrix of a linear layer."""
    num_weights: int
    """Number of unpacked weights."""
    unit: int | None
    """Number of the layer that it is gathered with; None for the rest of the model."""

    @property
    def num_stored(self) -> int:
        """Stored numbers of the whole tensor."""
        return math.prod(self.shape)

    def gathered_bytes(self, itemsize: int) -> int:
        """Return the size in a compute dtype of this itemsize."""
        return self.num_stored * (self.itemsize if self.is_packed else itemsize)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """Sizes of a whole model."""

    parameters: tuple[TensorSizes, ...]
    """Tied parameters are listed once."""
    buffer_bytes: int
    """Never sharded; includes scales of 4-bit blocks."""
    hidden_size: int
    """Width of the language model."""
    num_layers: int

    @property
    def num_weights(self) -> int:
        """Unpacked weights of all parameters."""
        return sum(each.num_weights for each in self.parameters)

    @property
    def stored_bytes(self) -> int:
        """Size of all full weights, as after reading them."""
        return sum(each.itemsize * each.num_stored for each in self.parameters)


def read_sizes(model: VisionLanguageModel, units: Sequence[nn.Module]) -> ModelSizes:
    """Read the sizes of a model, which may be on "meta"; `units` are gathered one at a time."""
    unit_of = {id(p): number for number, unit in enumerate(units) for p in unit.parameters()}
    modules = list(model.modules())
    packed = {id(m.weight): m.num_weights for m in modules if isinstance(m, PackedLinear)}
    multiplied = {id(m.weight) for m in modules if isinstance(m, nn.Linear)}
    language = model.sizes()[1]
    return ModelSizes(
        parameters=tuple(
            TensorSizes(
                name=name,
                shape=tuple(parameter.shape),
                itemsize=parameter.itemsize,
                is_packed=id(parameter) in packed,
                is_multiplied=id(parameter) in multiplied,
                num_weights=packed.get(id(parameter), parameter.numel()),
                unit=unit_of.get(id(parameter)),
            )
            for name, parameter in model.named_parameters()
        ),
        buffer_bytes=sum(buffer.numel() * buffer.itemsize for buffer in model.buffers()),
        hidden_size=language.hidden_size,
        num_layers=language.num_layers,
    )
