"""Notes on training rows and model positions that are shorter than a sample may be.

They are noted, not refused, because the training checks the same: it ends if a sample is longer
than a row or than the model's positions, and starts if none is, whatever `preprocess` would have
allowed. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.dataset_folder import INFO_NAME
from slurm_jobs.formats.processors.model_types import MODEL_CONFIG, TAKEN_IMAGES
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.stages.phases import packs_rows, parts_of
from slurm_jobs.spec.graph import preprocess_of
from slurm_jobs.spec.yaml.document import KeyPath


def row_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield a note for each limit of a row or model that is below that of the samples."""
    paths = {item.given: item.resolved for item in spec.marked}
    trainings = [item for item in spec.configs.items() if spec.views[item[0]].run == "train"]
    for name, config in trainings:
        at_config: KeyPath = ("stages", name, "config")
        positions = _positions(spec, config.model, paths)
        for number, part in enumerate(parts_of(config)):
            source = preprocess_of(spec.views, name, part.dataset)
            limit, origin = None, f"the data set {part.dataset}"
            if source is not None:
                limit, origin = spec.configs[source].max_tokens, f"stage `{source}`"
            elif part.dataset is not None:
                folder = paths.get(part.dataset, part.dataset)
                settings = spec.files.json_values(f"{folder}/{INFO_NAME}").get("preprocess")
                limit = settings.get("max_tokens") if isinstance(settings, Mapping) else None
            if positions is not None and isinstance(limit, int) and limit > positions[0]:
                most, note, keys = positions
                message = (
                    f"the language model has {most:,} positions{note}, and {origin} lets a sample "
                    f"have {limit:,} tokens: one that has more than {most:,} ends the training "
                    f"before its first step; preprocess with max_tokens: {most}, or give the model "
                    "more positions"
                )
                yield spec.problem((*at_config, "model", *keys), message)
            if source is None or not packs_rows(part):
                continue
            batching = (config.phases[number].batching or ()) if config.phases else ()
            for key in ("max_tokens", "max_images"):
                row, sample = getattr(part.batching, key), getattr(spec.configs[source], key)
                if row is None or row >= sample:
                    continue
                message = (
                    f"a row holds {row:,} {key.removeprefix('max_')}, and stage `{source}` lets a "
                    f"sample have {sample:,}: one that has more than a row ends the training "
                    f"before its first step; set it to {sample} or more, or {key} of stage "
                    f"`{source}` to {row}"
                )
                below = ("phases", number) if key in batching else ()
                yield spec.problem((*at_config, *below, "batching", key), message)


def _positions(
    spec: CheckedSpec, model: Any, paths: Mapping[str, str]
) -> tuple[int, str, KeyPath] | None:
    """Return the positions of the language model, their origin in words, and keys of the model.

    None if only the training can know them: models on a hub, scaled rotary embeddings, and models
    whose image tokens share positions.
    """
    folder = model.path or model.language.path
    if folder is None and model.name is not None:
        return None
    if folder is None:
        return model.language.sizes()["max_positions"], "", ("language", "max_positions")
    values = spec.files.json_values(f"{paths.get(folder, folder)}/{MODEL_CONFIG}")
    parts = (values.get("text_config"), values.get("language"), values)
    language = next(part for part in parts if isinstance(part, Mapping))
    rope = language.get("rope_scaling") or language.get("rope_parameters") or {}
    limit = language.get("max_position_embeddings")
    is_shared = TAKEN_IMAGES.get(str(values.get("model_type"))) == "native"
    if is_shared or not isinstance(limit, int) or "factor" in str(rope):
        return None
    note = f" (max_position_embeddings in {folder}/{MODEL_CONFIG})"
    return limit, note, ("path",) if model.path else ("language", "path")
