"""Rows of a training that are shorter than a sample may be. PURE.

Noted and not refused, because training does the same: it ends where a sample is longer than a row,
and begins where none is, whatever `preprocess` would have let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.references import REFERENCE, referenced_stage
from slurm_jobs.spec.graph import Views
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_LIMITS = {"max_tokens": "tokens", "max_images": "images"}
"""Of a row and of a sample, by the same name."""


def row_notes(views: Views, configs: Mapping[str, Any], document: YamlDocument) -> list[Problem]:
    """A note for each limit of a row that is below that of the samples, at its place.

    Args:
        views: the stages.
        configs: of the built-in ones, without problems.
        document: for places.
    """
    notes: list[Problem] = []
    for name, config in configs.items():
        if views[name].run != "train":
            continue
        for place, batching, dataset in _readings(config):
            source = _preprocess_of(views, name, dataset)
            if batching.kind not in {"packed", "auto"} or source is None:
                continue
            path = ("stages", name, "config", *place, "batching")
            notes += _short(path, batching, source, configs[source], document)
    return list(dict.fromkeys(notes))


def _readings(config: Any) -> Iterator[tuple[Path, Any, str | None]]:
    """Of each phase: where its batching stands below the config, the batching, and its data set."""
    for number, phase in enumerate(config.phases):
        place: Path = () if phase.batching is None else ("phases", number)
        yield place, phase.batching or config.batching, phase.dataset or config.dataset
    if not config.phases:
        yield (), config.batching, config.dataset


def _preprocess_of(views: Views, train: str, dataset: str | None) -> str | None:
    """The `preprocess` stage that made the samples of a training; None if this spec has none."""
    if dataset is None:
        source = _parent(views, train, "consolidate")
    else:
        reference = REFERENCE.match(dataset)
        source = referenced_stage(reference[1]) if reference else None
    if source is None or source not in views or views[source].run != "consolidate":
        return None
    return _parent(views, source, "preprocess")


def _parent(views: Views, name: str, run: str) -> str | None:
    """The one stage right before that runs it."""
    found = [parent for parent in views[name].parents if views[parent].run == run]
    return found[0] if len(found) == 1 else None


def _short(
    path: Path, batching: Any, source: str, samples: Any, document: YamlDocument
) -> Iterator[Problem]:
    for key, unit in _LIMITS.items():
        row, sample = getattr(batching, key), getattr(samples, key)
        if row is None or row >= sample:
            continue
        message = (
            f"{path_text((*path, key))}: a row holds {row:,} {unit}, and stage `{source}` "
            f"lets a sample have {sample:,}: one that has more than a row ends the training before "
            f"its first step; set it to {sample} or more, or {key} of stage `{source}` to {row}"
        )
        yield problem_at(document, (*path, key), message)
