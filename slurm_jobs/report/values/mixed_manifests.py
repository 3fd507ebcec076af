"""Manifests that were mixed to a data set, from the result of `consolidate`. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.base.json_values import is_count, is_text

_COUNTS = ("num_rows", "num_rejected", "num_samples", "num_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedManifest:
    """One manifest of several, as `ManifestInfo` of the data set describes it."""

    name: str
    num_rows: int
    num_rejected: int
    num_samples: int
    """Samples of the data set that are from it, copies included."""
    num_tokens: int
    """Tokens of these samples."""


def read_mixture(values: object) -> tuple[MixedManifest, ...]:
    """Return the manifests in a stage's result; none if missing or of another version."""
    manifests = []
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, Mapping) or not is_text(value.get("name")):
            return ()
        if not all(is_count(value.get(name)) for name in _COUNTS):
            return ()
        counts = {name: int(value[name]) for name in _COUNTS}
        manifests.append(MixedManifest(name=value["name"], **counts))
    return tuple(manifests)
