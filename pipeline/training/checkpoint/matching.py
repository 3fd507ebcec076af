"""Whether a checkpoint holds what a training wants of it: names, shapes, dtypes.

torch.distributed.checkpoint casts a tensor of another dtype without a word, and
leaves out what the state has no place for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata

_MOST_NAMES = 5
"""Of each kind of difference in a message."""
_SHARED = ("model.", "optimizer.")
"""What all ranks hold together; of the rest a rank loads its own alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """What a checkpoint and a state do not have in common; each a name, or a name and how."""

    missing: Sequence[str]
    """The state has it, the checkpoint has not."""
    unexpected: Sequence[str]
    """Tensors that the checkpoint has and the state has not."""
    different: Sequence[str]
    """Of another shape or dtype, or a tensor in one and a value in the other."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.different)

    def __str__(self) -> str:
        kinds = {
            "not in the checkpoint": self.missing,
            "not in the model or optimizer": self.unexpected,
            "different": self.different,
        }
        return "; ".join(f"{kind}: {_first(names)}" for kind, names in kinds.items() if names)


def compare(stored: Mapping[str, STORAGE_TYPES], wanted: Mapping[str, Any]) -> Differences:
    """What keeps a state from being what was saved.

    Options of an optimizer that only another version of torch knows do not.

    Args:
        stored: of a checkpoint, by flat name.
        wanted: the state to load it into, nested.
    """
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(dict(wanted))
    flat = planner.state_dict
    return Differences(
        missing=sorted(flat.keys() - stored.keys()),
        unexpected=sorted(
            name
            for name in stored.keys() - flat.keys()
            if name.startswith(_SHARED) and isinstance(stored[name], TensorStorageMetadata)
        ),
        different=[
            f"{name} ({there} there, {here} here)"
            for name in sorted(flat.keys() & stored.keys())
            if (there := _describe_stored(stored[name])) != (here := _describe(flat[name]))
        ],
    )


def _describe(value: Any) -> str:
    """The same words as `_describe_stored`, for a value of the state; a DTensor counts whole."""
    if not isinstance(value, torch.Tensor):
        return "a value"
    return f"{tuple(value.shape)} of {value.dtype}"


def _describe_stored(value: STORAGE_TYPES) -> str:
    if not isinstance(value, TensorStorageMetadata):
        return "a value"
    return f"{tuple(value.size)} of {value.properties.dtype}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
