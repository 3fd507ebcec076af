"""Rows of a training that are shorter than a sample may be. PURE.

Noted and not refused, because training does the same: it ends where a sample is longer than a row,
and begins where none is, whatever `preprocess` would have let through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.stage_config.phases import as_training
from slurm_jobs.spec.graph import Views, preprocess_of
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
        for place, own, batching, dataset in _readings(config):
            source = preprocess_of(views, name, dataset)
            if batching.kind not in {"packed", "auto"} or source is None:
                continue
            for key in _short(batching, configs[source]):
                below = (*place, "batching", key) if key in own else ("batching", key)
                path = ("stages", name, "config", *below)
                message = _message(path, getattr(batching, key), source, configs[source])
                notes.append(problem_at(document, path, message))
    return list(dict.fromkeys(notes))


def _readings(config: Any) -> Iterator[tuple[Path, Collection[str], Any, str | None]]:
    """Of each phase: its place, its own keys of batching, the whole of that, its data set."""
    for number, phase in enumerate(config.phases):
        part = as_training(config, number)
        yield ("phases", number), phase.batching or (), part.batching, part.dataset
    if not config.phases:
        yield (), (), config.batching, config.dataset


def _short(batching: Any, samples: Any) -> Iterator[str]:
    """The limits of a row that are below those of the samples."""
    for key in _LIMITS:
        row = getattr(batching, key)
        if row is not None and row < getattr(samples, key):
            yield key


def _message(path: Path, row: int, source: str, samples: Any) -> str:
    key = str(path[-1])
    sample, unit = getattr(samples, key), _LIMITS[key]
    return (
        f"{path_text(path)}: a row holds {row:,} {unit}, and stage `{source}` "
        f"lets a sample have {sample:,}: one that has more than a row ends the training before "
        f"its first step; set it to {sample} or more, or {key} of stage `{source}` to {row}"
    )
