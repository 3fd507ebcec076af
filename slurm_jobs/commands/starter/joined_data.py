"""Several data to train on as one list of manifests, with the shares of a list of data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.commands.starter.training_data import FoundData
from slurm_jobs.formats.configs.proportions import Proportion, mixed_counts


def joined_data(found: Sequence[FoundData]) -> FoundData:
    """Return all data as one; a single one without a share stays as it is."""
    if len(found) == 1 and not found[0].proportion:
        return found[0]
    labels = _labels(found)
    numbers = [one.data.num_rows for one in found]
    counted = [number for number in numbers if number is not None]
    num_rows = None
    if len(counted) == len(found):
        num_rows = sum(mixed_counts(counted, [Proportion(**one.proportion) for one in found]))
    entries, evaluations = [], []
    texts: dict[str, bytes] = {}
    for one, label in zip(found, labels, strict=True):
        texts |= one.texts
        entries.append({**_entry(one, one.data.manifest, label), **one.proportion})
        if one.data.evaluation is not None:
            evaluations.append(_entry(one, one.data.evaluation, label))
    data = replace(
        found[0].data,
        entries=tuple(entries),
        evaluations=tuple(evaluations),
        image_root=None,
        columns={},
        num_rows=num_rows,
        num_unmixed_rows=sum(counted) if len(counted) == len(found) else None,
        is_exact=all(one.data.is_exact for one in found),
    )
    return FoundData(
        data=data,
        texts=texts,
        sizes=[size for one in found for size in one.sizes],
        notes=[note for one in found for note in one.notes],
    )


def held_out_entries(found: Sequence[FoundData]) -> tuple[Mapping[str, Any], ...]:
    """Return held-out rows as entries of a list of manifests."""
    entries = []
    for one, label in zip(found, _labels(found), strict=True):
        entries.append(_entry(one, one.data.manifest, label))
    return tuple(entries)


def _labels(found: Sequence[FoundData]) -> list[str]:
    """Return a name of its own for each of several data."""
    labels: list[str] = []
    for one in found:
        labels.append(_unused(one.name or PurePosixPath(one.data.manifest).stem, labels))
    return labels


def _entry(found: FoundData, manifest: str, label: str) -> Mapping[str, Any]:
    """Return an entry of the list, without what its path shows."""
    entry: dict[str, Any] = {"path": manifest}
    if label != PurePosixPath(manifest).stem:
        entry["name"] = label
    if found.data.columns:
        entry["columns"] = dict(found.data.columns)
    if found.data.image_root is not None:
        entry["image_root"] = found.data.image_root
    return entry


def _unused(label: str, others: Sequence[str]) -> str:
    """Return a name that no other manifest has: the label, or with a number after it."""
    number, name = 1, label
    while name in others:
        number += 1
        name = f"{label}-{number}"
    return name
