"""Losses by manifest in the records of steps: a mean and its number of targets for each manifest.

The fields follow those that every training has. The header names the manifests, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MANIFESTS_KEY = "manifests"
"""Key of the names in the header's metadata."""


class ManifestLoss(NamedTuple):
    """Loss of the targets of one manifest in one step, over all ranks."""

    mean: float
    """Nats per target; NaN without a target."""
    num_targets: int


NO_TARGETS = ManifestLoss(math.nan, 0)


def loss_field(number: int) -> str:
    """Return the field of a manifest's mean loss."""
    return f"manifest_{number}_loss"


def targets_field(number: int) -> str:
    """Return the field of a manifest's number of targets."""
    return f"manifest_{number}_targets"


def manifest_fields(num_manifests: int) -> list[tuple[str, str]]:
    """Return name and NumPy type of the fields, as in `STEP_FIELDS`."""
    fields = []
    for number in range(num_manifests):
        fields += [(loss_field(number), "f4"), (targets_field(number), "i4")]
    return fields


def manifest_values(losses: Sequence[ManifestLoss], num_manifests: int) -> dict[str, float]:
    """Return the values of the fields; a step without `losses` learned from none of them."""
    values: dict[str, float] = {}
    for number, loss in enumerate(losses or [NO_TARGETS] * num_manifests):
        values[loss_field(number)] = loss.mean
        values[targets_field(number)] = loss.num_targets
    return values


def recorded_manifests(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the manifests in a header; none if it was not written so."""
    names = metadata.get(MANIFESTS_KEY, ())
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()
