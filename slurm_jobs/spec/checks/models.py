"""Checks of models, processors and accelerate files. PURE."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from slurm_jobs.shared.accelerate_file import Asker, find_problems
from slurm_jobs.shared.errors import Problem
from slurm_jobs.shared.manifest_formats import (
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    VISION_PART,
    WHOLE_TYPES,
    PartKind,
    wrong_part,
)
from slurm_jobs.spec.graph import StageView, stage_views
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, path_text, problem_at

# Check of `strategy: accelerate`'s file against its stage, without accelerate.


_PLACE = ("config", "accelerate", "config")
_SHARDS_NOT = (
    "distributed_type is FSDP, and the stage's device is cpu, on which accelerate shards nothing "
    "(it would silently train as ddp): set `device: cuda`, or `strategy: fsdp2`"
)


def accelerate_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the problems of files of accelerate, at the line that names them.

    A file that does not exist, or will be another stage's output, is not read.
    """
    views = stage_views(document.value)
    problems = []
    for item in marked:
        text = files.small_text(item.resolved) if item.path[2:] == _PLACE else None
        if text is None:
            continue
        for message in _messages(text, views[str(item.path[1])]):
            told = f"{path_text(item.path)}: {item.given}: {message}"
            problems.append(problem_at(document, item.path, told))
    return problems


def _messages(text: str, view: StageView) -> list[str]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"not YAML as `accelerate config` writes it: {' '.join(str(error).split())}"]
    asker = _asker_of(view)
    found = find_problems(values, asker)
    is_sharded = isinstance(values, Mapping) and values.get("distributed_type") == "FSDP"
    return [*found, _SHARDS_NOT] if is_sharded and asker.device == "cpu" else found


def _asker_of(view: StageView) -> Asker:
    """Return the stage's settings; an invalid value counts as its default."""
    resources = view.keys.get("resources")
    config = view.config if isinstance(view.config, dict) else {}
    num_nodes = _count(resources, "nodes")
    return Asker(
        num_ranks=num_nodes * _count(resources, "tasks_per_node"),
        num_nodes=num_nodes,
        device=str(config.get("device", "cuda")),
        precision=str(config.get("precision", "auto")),
    )


def _count(resources: Any, key: str) -> int:
    given = resources.get(key, 1) if isinstance(resources, dict) else 1
    return given if type(given) is int and given > 0 else 1


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
_MODEL = "config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_WITH_TEMPLATE = ("tokenizer_config.json", _PROCESSOR)
"""Files that may have the chat template under a key."""
_FindMissing = Callable[[str, Callable[[str], bool], Callable[[str], str]], list[str]]
"""Function that returns missing files of a folder, from its path, existence checks and file texts.
"""


def processor_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    exists: Callable[[str], bool],
    read_text: Callable[[str], str],
) -> list[Problem]:
    """Return processor folders of `preprocess` stages that lack a file, at its line.

    A folder that does not exist, or will be another stage's output, is not read.
    """
    problems = []
    looks: dict[tuple[str | int, ...], tuple[_FindMissing, str]] = {
        ("config", "processor"): (_missing, "a processor as Hugging Face saves one"),
        ("config", "processor", "images"): (_missing_images, "that of a SigLIP"),
        ("config", "processor", "text"): (_missing_text, "that of a language model"),
    }
    for item in marked:
        look = looks.get(item.path[2:])
        if look is None or not exists(item.resolved):
            continue
        find_missing, kind = look
        if _is_file(item.resolved, read_text):
            message = (
                f"{path_text(item.path)}: {item.resolved} is a file, and a folder is needed: "
                f"{kind}; name its folder, {PurePosixPath(item.resolved).parent}"
            )
            problems.append(problem_at(document, item.path, message))
            continue
        missing = find_missing(item.resolved, exists, read_text)
        has_tokenizer = not _missing_text(item.resolved, exists, read_text)
        if (
            has_tokenizer
            and find_missing is _missing  # a processor of two folders has its own template
            and not document.value["stages"][item.path[1]]["config"].get("chat_template")
            and _lacks_template(item.resolved, exists, read_text)
        ):
            missing.append(f"a chat template ({_TEMPLATES[0]}, or `chat_template` of this stage)")
        if missing:
            message = (
                f"{path_text(item.path)}: {item.resolved} lacks {', '.join(missing)}; "
                f"it must be {kind}"
            )
            problems.append(problem_at(document, item.path, message))
    return problems


def _is_file(path: str, read_text: Callable[[str], str]) -> bool:
    if not path.endswith((".json", ".model", ".txt", ".jinja")):
        return False
    try:
        read_text(path)
    except UnicodeDecodeError:
        return True
    except OSError:
        return False
    return True


def _missing_images(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> list[str]:
    """Return missing files of the folder from which a composed processor has its images."""
    missing = []
    if not exists(f"{folder}/{_IMAGES}") and not _names_images(folder, read_text):
        missing.append(f"the image size ({_IMAGES})")
    if not exists(f"{folder}/{_MODEL}"):
        missing.append(f"the size of patches ({_MODEL})")
    return missing


def _missing_text(
    folder: str, exists: Callable[[str], bool], _read_text: Callable[[str], str]
) -> list[str]:
    """Return missing files of the folder from which a composed processor has its tokenizer."""
    if any(exists(f"{folder}/{name}") for name in _TOKENIZERS):
        return []
    return ["a tokenizer (tokenizer.json)"]


def _lacks_template(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> bool:
    """Check whether no file of a folder gives a chat template; an unreadable file is not judged."""
    if any(exists(f"{folder}/{name}") for name in _TEMPLATES):
        return False
    for name in _WITH_TEMPLATE:
        try:
            if '"chat_template"' in read_text(f"{folder}/{name}"):
                return False
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError):
            return False
    return True


def _missing(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> list[str]:
    missing = _missing_text(folder, exists, read_text)
    if not exists(f"{folder}/{_IMAGES}") and not _names_images(folder, read_text):
        missing.append(f"the image size ({_IMAGES})")
    if not exists(f"{folder}/{_PROCESSOR}") and not _counts_by_size(folder, read_text):
        missing.append(f"the number of tokens of an image ({_PROCESSOR})")
    return missing


def _counts_by_size(folder: str, read_text: Callable[[str], str]) -> bool:
    """Check whether an image's tokens depend on its size alone, as in the Qwen2-VL family.

    Their folders on hubs have no processor file. Unreadable files are not judged.
    """
    try:
        return '"Qwen2VLImageProcessor' in read_text(f"{folder}/{_IMAGES}")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _names_images(folder: str, read_text: Callable[[str], str]) -> bool:
    """Check whether the processor's own file contains the image processor, as in transformers 5.

    Unreadable files are not judged.
    """
    try:
        return '"image_processor"' in read_text(f"{folder}/{_PROCESSOR}")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True
