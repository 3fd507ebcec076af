"""Each rank's part of a sharded tensor, on which gradient norm, clipping and AdamW work here.

torch does them over DTensors, whose dispatch costs the host tens of milliseconds per step for
some hundred parameters, and many seconds in the first step (`python -m benchmarks.updates`).
All are element-wise, except for the sum of squares, so each rank computes the same numbers
from the local tensors. State dicts are torch's: checkpoints do not change.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import DTensor


def local_part(tensor: Any) -> Any:
    """Return the local part of a DTensor; anything else unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
