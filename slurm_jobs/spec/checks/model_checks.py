"""Check that the model folders of a training can be what it expects. PURE.

It reads only config.json, of folders that exist here. Names on a hub, and other stages' output, are
left to the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.model_kinds import (
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    VISION_PART,
    WHOLE_TYPES,
    PartKind,
    wrong_part,
)
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import stage_views
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_PLACES: dict[Path, PartKind | None] = {
    ("config", "model", "path"): None,
    ("config", "model", "vision", "path"): VISION_PART,
    ("config", "model", "language", "path"): LANGUAGE_PART,
}
"""Places where a training names a folder, with the required part; None for a whole model."""

_VISION_ALONE = frozenset({"clip_vision_model", "dinov2", "siglip2", "siglip2_vision_model"})
"""Vision models that cannot be part of a `small_vlm` either."""


def model_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the folders that cannot be such a model, each at its line."""
    views = stage_views(document.value)
    problems = []
    for item in marked:
        if item.path[2:] not in _PLACES or not item.given or not files.holds(item.resolved):
            continue
        model = (views[str(item.path[1])].config or {}).get("model")
        type_given = model.get("type", SMALL_VLM) if isinstance(model, Mapping) else None
        wrong = _wrong(item, type_given, files)
        if wrong:
            message = f"{path_text(item.path)}: {item.resolved}{wrong}"
            problems.append(problem_at(document, item.path, message))
    return problems


def _wrong(item: MarkedString, type_given: Any, files: Files) -> str:
    """Return a message to follow the folder's name; empty if it may be right."""
    folder = item.resolved
    if files.lacks(f"{folder}/{MODEL_CONFIG}"):
        return f" has no {MODEL_CONFIG}; {_instead(folder, files)}"
    try:
        values = json.loads(files.read_text(f"{folder}/{MODEL_CONFIG}"))
    except OSError:
        return ""
    except (ValueError, RecursionError) as error:
        return f": its {MODEL_CONFIG} is no valid JSON ({error}); copy the folder again"
    if not isinstance(values, dict):
        return f": its {MODEL_CONFIG} holds no keys and values; copy the folder again"
    part = _PLACES[item.path[2:]]
    found = _wrong_whole(values, type_given, item.given) if part is None else ""
    found = _wrong_part(values, part, item.given) if part is not None else found
    return f": {found}" if found else ""


def _instead(folder: str, files: Files) -> str:
    """Return the alternative to a folder without a config.json."""
    parent = str(PurePosixPath(folder).parent)
    if files.holds(f"{folder}/model/{MODEL_CONFIG}"):
        return f"it is the output of a training: give {folder}/model"
    if files.holds(f"{folder}/adapter_config.json"):
        return (
            "it holds adapters alone: give the `model/` next to it, into which they are merged, or "
            "the model that they were made for"
        )
    if files.holds(f"{folder}/snapshots"):
        return "it is of a hub's cache: give the folder in its snapshots/ that has one"
    if files.holds(f"{parent}/{MODEL_CONFIG}"):
        return f"give {parent}"
    return "give the folder that has it, next to the weights"


def _wrong_part(values: Mapping[str, Any], part: PartKind, given: str) -> str:
    """Return why a model is not the part of a `small_vlm` that it is named as, with the remedy."""
    wrong = wrong_part(values, part)
    kind = values.get("model_type")
    other = VISION_PART if part is LANGUAGE_PART else LANGUAGE_PART
    if wrong and kind in other.model_types:
        return (
            f"{wrong}; are the folders of vision and language swapped? This one goes to "
            f"`{other.name}: {{path: {given}}}`"
        )
    if wrong and kind in WHOLE_TYPES:
        return f"{wrong}; it is a whole model: {_as_whole(given)}"
    return wrong


def _wrong_whole(values: Mapping[str, Any], type_given: Any, given: str) -> str:
    """Return why a model is not what `model.type` says, with the remedy; empty without a type."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or type_given not in {SMALL_VLM, "hugging_face"}:
        return ""
    found = f"model_type is {kind!r}, and model.type is {type_given}"
    if kind == SMALL_VLM or kind in WHOLE_TYPES:
        if (kind == SMALL_VLM) == (type_given == SMALL_VLM):
            return ""
        remedy = f"set `type: {SMALL_VLM}`" if kind == SMALL_VLM else _as_whole(given)
        return f"{found}: {remedy}"
    part = next((p for p in (VISION_PART, LANGUAGE_PART) if kind in p.model_types), None)
    if part is not None:
        return (
            f"{found}: it is the {part.name} model alone; give it as "
            f"`model: {{{part.name}: {{path: {given}}}}}`, as a part of a {SMALL_VLM}"
        )
    if type_given == SMALL_VLM:
        return f"{found}: give the `model/` that a training of one exported, or {_as_whole(given)}"
    alone = _alone(values, kind)
    known = f"those that can be trained are {', '.join(WHOLE_TYPES)}"
    return f"{found}: it is a {alone} model alone; {known}" if alone else f"{found}: {known}"


def _as_whole(given: str) -> str:
    return f"set `model: {{type: hugging_face, path: {given}}}`"


def _alone(values: Mapping[str, Any], kind: str) -> str:
    """Return `vision` or `language` for a model that is nothing else; empty if unknown."""
    if kind in _VISION_ALONE:
        return "vision"
    names = values.get("architectures")
    has_vision = any("vision" in str(key) or "image" in str(key) for key in values)
    is_causal = isinstance(names, list) and any(str(n).endswith("ForCausalLM") for n in names)
    return "language" if is_causal and not has_vision else ""
