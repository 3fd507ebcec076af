"""Checks of models, processors and accelerate files. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from slurm_jobs.shared.accelerate_file import Asker, find_problems
from slurm_jobs.shared.errors import Problem
from slurm_jobs.shared.processors.model_types import (
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    VISION_PART,
    WHOLE_TYPES,
    PartKind,
    wrong_part,
)
from slurm_jobs.spec.graph import CheckedSpec
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.yaml.document import KeyPath

# Check of `strategy: accelerate`'s file against its stage, without accelerate.


_PLACE = ("config", "accelerate", "config")
_SHARDS_NOT = (
    "distributed_type is FSDP, and the stage's device is cpu, on which accelerate shards nothing "
    "(it would silently train as ddp): set `device: cuda`, or `strategy: fsdp2`"
)


def accelerate_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the problems of files of accelerate, at the line that names them.

    A file that does not exist, or will be another stage's output, is not read. An invalid setting
    of the stage counts as its default.
    """
    for item in spec.expanded:
        text = spec.files.small_text(item.resolved) if item.path[2:] == _PLACE else None
        if text is None:
            continue
        view = spec.views[str(item.path[1])]
        counts = [view.resources.get(key, 1) for key in ("nodes", "tasks_per_node")]
        num_nodes, num_tasks = (n if type(n) is int and n > 0 else 1 for n in counts)
        config = view.config or {}
        asker = Asker(
            num_ranks=num_nodes * num_tasks,
            num_nodes=num_nodes,
            device=str(config.get("device", "cuda")),
            precision=str(config.get("precision", "auto")),
        )
        try:
            values = yaml.safe_load(text)
            messages = find_problems(values, asker)
            is_sharded = isinstance(values, Mapping) and values.get("distributed_type") == "FSDP"
            if is_sharded and asker.device == "cpu":
                messages = [*messages, _SHARDS_NOT]
        except yaml.YAMLError as error:
            described = " ".join(str(error).split())
            messages = [f"not YAML as `accelerate config` writes it: {described}"]
        for message in messages:
            yield spec.problem(item.path, f"{item.given}: {message}")


# Check that the model folders of a training can be what it expects.
#
# It reads only config.json, of folders that exist here. Names on a hub, and other stages' output,
# are left to the job.


_PLACES: dict[KeyPath, PartKind | None] = {
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
        if item.path[2:] in _PLACES and item.given and spec.files.holds(item.resolved):
            model = (spec.views[str(item.path[1])].config or {}).get("model")
            type_given = model.get("type", SMALL_VLM) if isinstance(model, Mapping) else None
            wrong = _wrong(item, type_given, spec.files)
            if wrong:
                yield spec.problem(item.path, f"{item.resolved}{wrong}")


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
        return f": its {MODEL_CONFIG} is not valid JSON ({error}); copy the folder again"
    if not isinstance(values, dict):
        return f": its {MODEL_CONFIG} holds no keys and values; copy the folder again"
    part = _PLACES[item.path[2:]]
    wrong = (
        _wrong_whole(values, type_given, item.given)
        if part is None
        else _wrong_part(values, part, item.given)
    )
    return f": {wrong}" if wrong else ""


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
    conflict = f"model_type is {kind!r}, and model.type is {type_given}"
    if kind == SMALL_VLM or kind in WHOLE_TYPES:
        remedy = f"set `type: {SMALL_VLM}`" if kind == SMALL_VLM else _as_whole(given)
        is_right = (kind == SMALL_VLM) == (type_given == SMALL_VLM)
        return "" if is_right else f"{conflict}: {remedy}"
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


# Check that a processor folder has the files of `preprocess`, without reading a model.
#
# The content of the files is left to the job: `slurm_jobs/shared/processors` and `tokenizer.py`.


_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer_config.json"),
)
"""Files from one or several of which transformers reads a tokenizer, depending on its kind."""

_IMAGES = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_KINDS: Mapping[KeyPath, str] = {
    ("config", "processor"): "a processor as Hugging Face saves one",
    ("config", "processor", "images"): "that of a SigLIP",
    ("config", "processor", "text"): "that of a language model",
}
"""Places where a `preprocess` names a folder, and the kind of it."""


def processor_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield processor folders of `preprocess` stages that lack a file, at its line.

    A folder that does not exist, or will be another stage's output, is not read.
    """
    for item in spec.expanded:
        kind, folder = _KINDS.get(item.path[2:]), item.resolved
        if kind is None or not spec.files.holds(folder):
            continue
        if _is_file(folder, spec.files):
            message = (
                f"{folder} is a file, and a folder is needed: {kind}; name its folder, "
                f"{PurePosixPath(folder).parent}"
            )
            yield spec.problem(item.path, message)
            continue
        config = spec.views[str(item.path[1])].config or {}
        missing = _missing(
            folder, str(item.path[-1]), spec.files, bool(config.get("chat_template"))
        )
        if missing:
            yield spec.problem(item.path, f"{folder} lacks {', '.join(missing)}; it must be {kind}")


def _is_file(path: str, files: Files) -> bool:
    try:
        if path.endswith((".json", ".model", ".txt", ".jinja")):
            files.read_text(path)
            return True
    except UnicodeDecodeError:
        return True
    except OSError:
        pass
    return False


def _missing(folder: str, key: str, files: Files, has_template: bool) -> list[str]:
    """Return what a folder lacks of a whole `processor`, or of its `images` or `text`."""

    def has(*names: str) -> bool:
        return any(files.holds(f"{folder}/{name}") for name in names)

    def says(name: str, word: str) -> bool:
        """Check for a word in a file; an unreadable one is not judged."""
        try:
            return word in files.read_text(f"{folder}/{name}")
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError):
            return True

    missing = []
    lacks_tokenizer = key != "images" and not has(*_TOKENIZERS)
    if lacks_tokenizer:
        missing.append("a tokenizer (tokenizer.json)")
    # Since transformers 5 the processor's own file contains the image processor.
    if key != "text" and not has(_IMAGES) and not says(_PROCESSOR, '"image_processor"'):
        missing.append(f"the image size ({_IMAGES})")
    if key == "images" and not has(MODEL_CONFIG):
        missing.append(f"the size of patches ({MODEL_CONFIG})")
    if key != "processor":
        return missing
    # In the Qwen2-VL family an image's tokens depend on its size alone. Their folders on hubs have
    # no processor file.
    if not has(_PROCESSOR) and not says(_IMAGES, '"Qwen2VLImageProcessor'):
        missing.append(f"the number of tokens of an image ({_PROCESSOR})")
    # A processor of two folders has its own template.
    if not (lacks_tokenizer or has_template or has(*_TEMPLATES)) and not any(
        says(name, '"chat_template"') for name in ("tokenizer_config.json", _PROCESSOR)
    ):
        missing.append(f"a chat template ({_TEMPLATES[0]}, or `chat_template` of this stage)")
    return missing
