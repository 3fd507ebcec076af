"""Sizes and needs of small models, for the tests of memory."""

from __future__ import annotations

import math

from pipeline.train.memory.memory_need import MemoryNeed
from pipeline.train.memory.sharing import Sharing
from pipeline.train.memory.tensor_sizes import ModelSizes, TensorSizes

GB = 10**9
WHOLE = Sharing(is_sharded=False, num_shards=1)
IN_TWO = Sharing(is_sharded=True, num_shards=2, accumulates_whole=True)


def tensor(name: str, *shape: int, **changes) -> TensorSizes:
    values = {
        "name": name,
        "shape": shape,
        "itemsize": 4,
        "is_packed": False,
        "is_multiplied": len(shape) == 2,
        "num_weights": math.prod(shape),
        "unit": None,
        **changes,
    }
    return TensorSizes(**values)


SIZES = ModelSizes(
    parameters=(
        tensor("embed", 10, 8, is_multiplied=False),
        tensor("first", 8, 8, unit=0),
        tensor("second", 9, 8, unit=1),
        tensor("packed", 160, 1, unit=2, itemsize=1, is_packed=True, num_weights=320),
        tensor("bias", 5, unit=2),
    ),
    buffer_bytes=12,
    hidden_size=8,
    num_layers=3,
)
ALL_FLOATS = ("embed", "first", "second", "bias")
NUM = 80 + 64 + 72 + 5
NEED = MemoryNeed(
    weights_bytes=7 * GB,
    buffers_bytes=0,
    gradients_bytes=7 * GB,
    optimizer_bytes=14 * GB,
    accumulated_bytes=0,
    computing_bytes=3 * GB,
    activations_bytes=2 * GB,
    mask_bytes=0,
    offloads=False,
)
