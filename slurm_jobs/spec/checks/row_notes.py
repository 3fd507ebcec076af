"""Notes on training rows and model positions that are shorter than a sample may be. PURE.

They are noted, not refused, because the training checks the same: it ends if a sample is longer
than a row or than the model's positions, and starts if none is, whatever `preprocess` would have
allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.dataset_names import INFO_NAME
from slurm_jobs.common.errors import Problem
from slurm_jobs.common.model_kinds import MODEL_CONFIG, TAKEN_IMAGES
from slurm_jobs.common.stage_config.phases import as_training
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import Views, preprocess_of
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_LIMITS = {"max_tokens": "tokens", "max_images": "images"}
"""Limits of a row and of a sample, by the same name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Limit:
    """Most tokens that a sample may have, by the data or by the model."""

    num_tokens: int
    source: str = ""
    """Origin of the limit, in words."""
    keys: Path = ()
    """Keys of the model's config."""


def row_notes(
    views: Views,
    configs: Mapping[str, Any],
    document: YamlDocument,
    paths: Mapping[str, str],
    files: Files,
) -> list[Problem]:
    """Return a note for each limit of a row or model that is below that of the samples.

    Args:
        views: the stages.
        configs: of the built-in ones, without problems.
        document: for places.
        paths: from a path in the spec to its resolved path.
        files: for descriptions of data sets and models.
    """
    notes: list[Problem] = []
    for name, config in configs.items():
        if views[name].run != "train":
            continue
        for place, own, batching, dataset in _readings(config):
            source = preprocess_of(views, name, dataset)
            limit = (
                _limit_of_stage(source, configs)
                if source is not None
                else _limit_of_dataset(dataset, paths, files)
            )
            positions = _positions(config.model, paths, files)
            if limit and positions and limit.num_tokens > positions.num_tokens:
                notes.append(_position_note(name, positions, limit, document))
            if batching.kind not in {"packed", "auto"} or source is None:
                continue
            for key in _short(batching, configs[source]):
                below = (*place, "batching", key) if key in own else ("batching", key)
                path = ("stages", name, "config", *below)
                message = _message(path, getattr(batching, key), source, configs[source])
                notes.append(problem_at(document, path, message))
    return list(dict.fromkeys(notes))


def _readings(config: Any) -> Iterator[tuple[Path, Collection[str], Any, str | None]]:
    """Yield place, own batching keys, complete batching and data set of each phase."""
    for number, phase in enumerate(config.phases):
        part = as_training(config, number)
        yield ("phases", number), phase.batching or (), part.batching, part.dataset
    if not config.phases:
        yield (), (), config.batching, config.dataset


def _short(batching: Any, samples: Any) -> Iterator[str]:
    """Yield the limits of a row that are below those of the samples."""
    for key in _LIMITS:
        row = getattr(batching, key)
        if row is not None and row < getattr(samples, key):
            yield key


def _limit_of_stage(source: str, configs: Mapping[str, Any]) -> _Limit:
    return _Limit(num_tokens=configs[source].max_tokens, source=f"stage `{source}`")


def _limit_of_dataset(folder: str | None, paths: Mapping[str, str], files: Files) -> _Limit | None:
    if folder is None:
        return None
    info = files.json_values(f"{paths.get(folder, folder)}/{INFO_NAME}")
    settings = info.get("preprocess")
    limit = settings.get("max_tokens") if isinstance(settings, Mapping) else None
    if not isinstance(limit, int):
        return None
    return _Limit(num_tokens=limit, source=f"the data set {folder}")


def _positions(model: Any, paths: Mapping[str, str], files: Files) -> _Limit | None:
    """Return the positions of the language model.

    None if only the training can know them: models on a hub, scaled rotary embeddings, and models
    whose image tokens share positions.
    """
    folder = model.path or model.language.path
    if folder is None:
        if model.name is not None:
            return None
        limit = model.language.sizes()["max_positions"]
        return _Limit(num_tokens=limit, keys=("language", "max_positions"))
    values = files.json_values(f"{paths.get(folder, folder)}/{MODEL_CONFIG}")
    if TAKEN_IMAGES.get(str(values.get("model_type"))) == "native":
        return None
    parts = (values.get("text_config"), values.get("language"), values)
    language = next(part for part in parts if isinstance(part, Mapping))
    rope = language.get("rope_scaling") or language.get("rope_parameters") or {}
    limit = language.get("max_position_embeddings")
    if not isinstance(limit, int) or "factor" in str(rope):
        return None
    return _Limit(
        num_tokens=limit,
        source=f" (max_position_embeddings in {folder}/{MODEL_CONFIG})",
        keys=("path",) if model.path else ("language", "path"),
    )


def _position_note(
    name: str, positions: _Limit, samples: _Limit, document: YamlDocument
) -> Problem:
    limit = positions.num_tokens
    path: Path = ("stages", name, "config", "model", *positions.keys)
    message = (
        f"{path_text(path)}: the language model has {limit:,} positions{positions.source}, and "
        f"{samples.source} lets a sample have {samples.num_tokens:,} tokens: one that has more "
        f"than {limit:,} ends the training before its first step; preprocess with max_tokens: "
        f"{limit}, or give the model more positions"
    )
    return problem_at(document, path, message)


def _message(path: Path, row: int, source: str, samples: Any) -> str:
    key = str(path[-1])
    sample, unit = getattr(samples, key), _LIMITS[key]
    return (
        f"{path_text(path)}: a row holds {row:,} {unit}, and stage `{source}` "
        f"lets a sample have {sample:,}: one that has more than a row ends the training before "
        f"its first step; set it to {sample} or more, or {key} of stage `{source}` to {row}"
    )
