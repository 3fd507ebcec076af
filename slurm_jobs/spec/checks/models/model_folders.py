"""Check that the model folders of a training can be what it expects.

It reads only config.json, of folders that exist here. `hub_models` checks models on a hub. PURE.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.processors.model_types import (
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    VISION_PART,
    WHOLE_TYPES,
    PartKind,
    wrong_part,
    wrong_whole_model,
)
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import KeyPath

PLACES: dict[KeyPath, PartKind | None] = {
    ("config", "model", "path"): None,
    ("config", "model", "vision", "path"): VISION_PART,
    ("config", "model", "language", "path"): LANGUAGE_PART,
}
"""Places where a training names a folder, with the required part; None for a whole model."""

_VISION_ALONE = frozenset({"clip_vision_model", "dinov2", "siglip2", "siglip2_vision_model"})
"""Vision models that cannot be part of a `small_vlm` either."""


def model_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the folders that cannot be such a model, each at its line."""
    for item in spec.expanded:
        if item.path[2:] in PLACES and item.given and spec.files.holds(item.resolved):
            model = (spec.views[str(item.path[1])].config or {}).get("model")
            type_given = model.get("type", SMALL_VLM) if isinstance(model, Mapping) else None
            wrong = _wrong(item, type_given, spec.files)
            if wrong:
                yield spec.problem(item.path, f"{item.resolved}{wrong}")


def _wrong(item: MarkedString, type_given: Any, files: Files) -> str | None:
    """Return a message to follow the folder's name; None if it may be right."""
    folder = item.resolved
    if files.lacks(f"{folder}/{MODEL_CONFIG}"):
        return f" has no {MODEL_CONFIG}; {_instead(folder, files)}"
    try:
        values = json.loads(files.read_text(f"{folder}/{MODEL_CONFIG}"))
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        return f": its {MODEL_CONFIG} is not valid JSON ({error}); copy the folder again"
    if not isinstance(values, dict):
        return f": its {MODEL_CONFIG} holds no keys and values; copy the folder again"
    wrong = wrong_model(values, item.path[2:], type_given, item.given)
    return f": {wrong}" if wrong else None


def wrong_model(
    values: Mapping[str, Any], place: KeyPath, type_given: Any, given: str
) -> str | None:
    """Return why a model cannot be what a training uses it as, with the remedy; None if it can.

    Args:
        values: of its config.json.
        place: one of `PLACES`; any other is that of a whole model.
        type_given: `model.type` of the training.
        given: its folder as the spec names it, for advice.
    """
    part = PLACES.get(place)
    if part is None:
        return _wrong_whole(values, type_given, given)
    return _wrong_part(values, part, given)


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


def _wrong_part(values: Mapping[str, Any], part: PartKind, given: str) -> str | None:
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


def _wrong_whole(values: Mapping[str, Any], type_given: Any, given: str) -> str | None:
    """Return why a model is not what `model.type` says, with the remedy; empty without a type."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or type_given not in {SMALL_VLM, "hugging_face"}:
        return None
    conflict = f"model_type is {kind!r}, and model.type is {type_given}"
    if kind == SMALL_VLM or kind in WHOLE_TYPES:
        remedy = f"set `type: {SMALL_VLM}`" if kind == SMALL_VLM else _as_whole(given)
        is_right = (kind == SMALL_VLM) == (type_given == SMALL_VLM)
        return wrong_whole_model(values) if is_right else f"{conflict}: {remedy}"
    if type_given == "hugging_face" and wrong_whole_model(values):
        return wrong_whole_model(values)
    for part in (VISION_PART, LANGUAGE_PART):
        if kind in part.model_types:
            return (
                f"{conflict}: it is the {part.name} model alone; give it as "
                f"`model: {{{part.name}: {{path: {given}}}}}`, as a part of a {SMALL_VLM}"
            )
    if type_given == SMALL_VLM:
        return (
            f"{conflict}: give the `model/` that a training of one exported, or {_as_whole(given)}"
        )
    names = values.get("architectures")
    has_vision = any("vision" in str(key) or "image" in str(key) for key in values)
    is_causal = isinstance(names, list) and any(str(n).endswith("ForCausalLM") for n in names)
    alone = "language" if is_causal and not has_vision else ""
    alone = "vision" if kind in _VISION_ALONE else alone
    what = f"it is a {alone} model alone; " if alone else ""
    return f"{conflict}: {what}those that can be trained are {', '.join(WHOLE_TYPES)}"


def _as_whole(given: str) -> str:
    return f"set `model: {{type: hugging_face, path: {given}}}`"
