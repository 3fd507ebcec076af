"""Comparison of a checkpoint with a training's state: names, shapes, dtypes.

torch.distributed.checkpoint silently casts tensors to another dtype, and ignores tensors that
are not in the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata

_MOST_NAMES = 5
"""Number of names per kind of difference in a message."""


_SHARED = ("model.", "optimizer.")
"""State that all ranks share; of the rest each rank loads its part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Differences between a checkpoint and a state; each is a name, and how it differs."""

    missing: Sequence[str]
    """In the state, but not in the checkpoint."""
    unexpected: Sequence[str]
    """Tensors in the checkpoint, but not in the state."""
    different: Sequence[str]
    """Other shape or dtype, or a tensor in one and a value in the other."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.different)

    def __str__(self) -> str:
        kinds = {
            "not in the checkpoint": self.missing,
            "not in the model or optimizer": self.unexpected,
            "different": self.different,
        }
        texts = []
        for kind, names in kinds.items():
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            if names:
                texts.append(f"{kind}: {', '.join(names[:_MOST_NAMES])}{more}")
        return "; ".join(texts)


def compare(stored: Mapping[str, STORAGE_TYPES], wanted: Mapping[str, Any]) -> Differences:
    """Return the differences that prevent loading.

    Options of an optimizer that only another version of torch has are ignored.

    `stored` is a checkpoint's content by flat name, `wanted` the nested state to load it into.
    """
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(dict(wanted))
    flat = planner.state_dict
    missing = sorted(flat.keys() - stored.keys())
    tensors = {name for name, value in stored.items() if isinstance(value, TensorStorageMetadata)}
    unexpected = sorted(name for name in tensors - flat.keys() if name.startswith(_SHARED))
    different = []
    for name in sorted(flat.keys() & stored.keys()):
        there, here = describe_value(stored[name]), describe_value(flat[name])
        if there != here:
            different.append(f"{name} ({there} in the checkpoint, {here} now)")
    return Differences(missing=missing, unexpected=unexpected, different=different)


def describe_value(value: Any) -> str:
    """Describe a value, stored or not; a DTensor by its full shape."""
    if isinstance(value, TensorStorageMetadata):
        return f"{tuple(value.size)} of {value.properties.dtype}"
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} of {value.dtype}"
    return "a value"
