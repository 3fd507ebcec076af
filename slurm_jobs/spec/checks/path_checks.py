"""Checks of paths, files and targets. PURE."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from slurm_jobs.shared.config import AddressMarker
from slurm_jobs.shared.configs.stages import ChatTemplateName
from slurm_jobs.shared.errors import Problem, did_you_mean
from slurm_jobs.shared.expand import REFERENCE, referenced_stage
from slurm_jobs.shared.manifest_formats import MODEL_CONFIG, SMALL_VLM
from slurm_jobs.spec.graph import Views, stage_views
from slurm_jobs.spec.model import NodePathMarker, ProgramMarker
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, path_text, problem_at

# Checks of the paths in a spec or profile: missing, empty, unknown variables.


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""Pattern of owner/name."""

_SHELL_NAME = re.compile(
    r"^~[A-Za-z0-9_.-]*(?=/)|\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII
)
_IN_ENVIRONMENT = (
    "values of `environment` are quoted. Write it out, or `export NAME=...` as a line of `setup`"
)
_IN_OWN_CONFIG = (
    "a function of yours gets its config unchanged. Write it out, or expand it there "
    "(`os.path.expandvars`, `os.path.expanduser`)"
)

_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]+://|file:/|[\w.-]+@[\w.-]+:", re.ASCII | re.IGNORECASE
)
"""Pattern of a URL, or of scp's addresses."""
_ADDRESS_WITHIN = re.compile(r"/[A-Za-z][A-Za-z0-9+.-]+:/", re.ASCII)
"""Pattern of a URL in a path, in which two slashes have become one."""
_PLACEHOLDER = re.compile(
    r"%[A-Za-z](?![A-Za-z0-9])|%[A-Za-z_]+%|<[A-Za-z_][\w-]*>"
    r"|(?<!\$)\{\{?[ ]*[A-Za-z_][\w.]*[ ]*\}\}?",
    re.ASCII,
)
"""Pattern of a placeholder for a name, as Slurm, Windows, Python, Jinja and manuals write it."""

_MODEL_FOLDERS = {
    *(("model", "path"), ("vision", "path"), ("language", "path")),
    *(("processor", "images"), ("processor", "text")),
}


def path_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    exists: Callable[[str], bool],
    *,
    runs_here: bool = False,
) -> list[Problem]:
    """Return every path that is invalid, or does not exist but must.

    With `runs_here` the jobs run on this machine, so their programs must exist here too.
    """
    problems = []
    for item in marked:
        message = _message(item, exists, runs_here=runs_here)
        if message is not None:
            message = f"{path_text(item.path)}: {message}"
            problems.append(problem_at(document, item.path, message))
    return problems


def _message(item: MarkedString, exists: Callable[[str], bool], *, runs_here: bool) -> str | None:
    if not item.given:
        return "the path is empty"
    if item.problem:
        return item.problem
    references = REFERENCE.finditer(item.given)
    reference = next((match for match in references if referenced_stage(match[1])), None)
    if reference is not None:
        if "config" not in item.path:
            return f"`{reference[0]}` has a meaning in the config of a stage alone"
        if reference.start():
            return f"`{reference[0]}` must be at the start of the path"
        return None
    if _ADDRESS.match(item.given) and not isinstance(item.marker, AddressMarker):
        return _address(item.given)
    if "$" in item.given and (hidden := _ADDRESS_WITHIN.search(item.resolved)):
        return (
            f"a variable in `{item.given}` holds an address ({hidden[0].strip('/')}//...); write "
            "a path of a file system that the nodes have"
        )
    if isinstance(item.marker, NodePathMarker) or exists(item.resolved):
        return None
    return _missing(item, _as_written(item), runs_here=runs_here)


def _as_written(item: MarkedString) -> str:
    """Return an addition to a resolved path that shows the value in the file."""
    if item.given == item.resolved:
        return ""
    if item.given[:1] in {"/", "~"} or "$" in item.given:
        return f" (written as `{item.given}`)"
    return f" (`{item.given}`, relative to the file)"


def _address(given: str) -> str:
    local = re.fullmatch(r"(?i)file:(?://(?:localhost)?)?(/.*)", given)
    remedy = f"write `{local[1]}`" if local else "write a path of a file system that the nodes have"
    return f"`{given}` is an address, and a path is needed: {remedy}"


def _missing(item: MarkedString, shown: str, *, runs_here: bool) -> str | None:
    """Return a message for a path that does not exist; None if that is no mistake."""
    if isinstance(item.marker, ProgramMarker):
        if not runs_here or "/" not in item.resolved:
            return None
        return f"nothing at {item.resolved}{shown}, and the jobs run on this machine"
    placeholder = _PLACEHOLDER.search(item.given)
    if placeholder is not None and not item.marker.must_exist:
        return (
            f"`{placeholder[0]}` would be part of the folder's name: only `~`, `$NAME` and "
            "`${NAME}` are replaced in a path (`$USER` is your name); make the folder first if "
            "that is its name"
        )
    if not item.marker.must_exist:
        return None
    return f"nothing at {item.resolved}{shown}{_other_hint(item)}"


def _other_hint(item: MarkedString) -> str:
    """Return what else can be given instead of a path; or a note on model names of hubs."""
    if item.path[-1:] == ("chat_template",):
        return f"; the names of templates are {', '.join(get_args(ChatTemplateName))}"
    is_model = item.path[-1:] == ("processor",) or item.path[-2:] in _MODEL_FOLDERS
    if not is_model or not _HUB_NAME.fullmatch(item.given):
        return ""
    folder = "download it first, and give the folder"
    if item.path[-2:] == ("model", "path"):
        named = f"model: {{type: hugging_face, name: {item.given}}}"
        return f"; a model on a hub is named by `{named}`; or {folder}"
    return f"; names on a hub are not taken: {folder}"


def runs_dir_problems(
    marked: Sequence[MarkedString], document: YamlDocument, obstacle: Callable[[str], str]
) -> list[Problem]:
    """Return the problem of a `runs_dir` in which no run can be created."""
    problems = []
    for item in marked:
        if item.path != ("runs_dir",) or not item.given:
            continue
        reason = obstacle(item.resolved)
        if reason:
            message = f"runs_dir: no run can be made in {item.resolved}: {reason}"
            problems.append(problem_at(document, item.path, message))
    return problems


def unexpanded_notes(views: Views, document: YamlDocument) -> list[Problem]:
    """Return a note for each path-like value whose variables are never expanded.

    These are the values of `environment` and the config of a user's own function.
    """
    values = document.value if isinstance(document.value, dict) else {}
    holders: list[tuple[KeyPath, Any, str]] = [
        (("environment",), values.get("environment"), _IN_ENVIRONMENT)
    ]
    for name, view in views.items():
        place: KeyPath = ("stages", name)
        holders.append(((*place, "environment"), view.keys.get("environment"), _IN_ENVIRONMENT))
        if view.run is not None and ":" in view.run:
            holders.append(((*place, "config"), view.config, _IN_OWN_CONFIG))
    return [
        problem_at(document, path, f"{path_text(path)}: `{name}` stays as it is written: {why}")
        for place, held, why in holders
        for path, text in _texts(held, place)
        if (name := _unexpanded(text))
    ]


def _unexpanded(text: str) -> str:
    """Return the part of a path-like text that a shell would expand; empty for any other text."""
    match = _SHELL_NAME.search(text)
    if match is None or "/" not in text or any(char.isspace() for char in text):
        return ""
    return match[0]


def _texts(values: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _texts(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _texts(value, (*path, index))


# Check that patterns of linear layers match some, as `pipeline.models.linear_layers` does.
#
# Layer names come from the index of the weights, if a model is here and has one. In some families
# loading changes how these names begin, but never their last word.


_LANGUAGE, _HEAD = "language", "lm_head"
"""Word for all layers of the language model; and the one layer whose full name has no dot. The
weights omit that layer if it is the embeddings."""
_WORD = re.compile(r"[\w-]*")
"""Pattern of a single word: full names of layers have dots, and patterns of them `*`, `?` or `[`.
"""
_KEYS = (("adapters", "targets"), ("quantize", "targets"), ("quantize", "skip"))
_MODEL: KeyPath = ("config", "model", "path")
_LANGUAGE_MODEL: KeyPath = ("config", "model", "language", "path")
_INDEX = "model.safetensors.index.json"
_MOST_NAMES = 8


def target_problems(
    document: YamlDocument, marked: Sequence[MarkedString], files: Files
) -> list[Problem]:
    """Return patterns that match no layer of any model or of this one, or its embeddings."""
    problems = []
    for name, view in stage_views(document.value).items():
        if view.run != "train":
            continue
        own = {item.path[2:]: item.resolved for item in marked if item.path[:2] == ("stages", name)}
        words = _last_words(own.get(_MODEL), files)
        tied = _tied_head(own, files)
        config = view.config or {}
        for place, pattern in _patterns(config):
            path = ("stages", name, "config", *place)
            wrong = _wrong(pattern, words) or _wrong_head(pattern, place, tied, config)
            if wrong:
                message = f"{path_text(path)}: {pattern!r} {wrong}"
                problems.append(problem_at(document, path, message))
    return problems


def _tied_head(own: Mapping[KeyPath, str], files: Files) -> str:
    """Return the output head's full name if it is certain that it is the embeddings."""
    for path in (_MODEL, _LANGUAGE_MODEL):
        values = files.json_values(f"{own[path]}/{MODEL_CONFIG}") if path in own else {}
        is_small = values.get("model_type") == SMALL_VLM
        told = values.get("language") if is_small else values
        if isinstance(told, Mapping) and told.get("tie_word_embeddings") is True:
            return f"{_LANGUAGE}.{_HEAD}" if is_small or path == _LANGUAGE_MODEL else _HEAD
    return ""


def _wrong_head(pattern: str, place: KeyPath, tied: str, config: Mapping[str, Any]) -> str:
    """Return a message for a pattern that matches a head without its own weight."""
    key, inner = str(place[0]), place[1]
    if not tied or inner == "skip" or not fnmatch.fnmatchcase(tied, pattern):
        return ""
    skipped = (skip for of, skip in _patterns({key: config[key]}) if of[1] == "skip")
    if any(fnmatch.fnmatchcase(tied, skip) for skip in skipped):
        return ""
    return (
        f"matches {tied}, which is the embeddings by another name (tie_word_embeddings in the "
        f"model's {MODEL_CONFIG}), and has no place of its own in an export; give `{_LANGUAGE}`, "
        f"or patterns that leave {tied} out"
    )


def _patterns(config: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place of each pattern below the config; values of other kinds are skipped."""
    for key, inner in _KEYS:
        values = config.get(key)
        given = values.get(inner) if isinstance(values, Mapping) else None
        for number, pattern in enumerate(given if isinstance(given, list) else ()):
            if isinstance(pattern, str):
                yield (key, inner, number), pattern


def _last_words(folder: str | None, files: Files) -> frozenset[str]:
    """Return the last words of all layers' names; empty if unknown."""
    weights = (
        files.json_values(f"{folder}/{_INDEX}").get("weight_map") if folder is not None else None
    )
    names = weights if isinstance(weights, dict) else {}
    found = {name.split(".")[-2] for name in names if name.endswith(".weight")}
    return frozenset({*found, _HEAD} if found else ())


def _wrong(pattern: str, words: Collection[str]) -> str:
    """Return a message that follows the pattern; empty if it may match."""
    if pattern in {_LANGUAGE, _HEAD}:
        return ""
    if _WORD.fullmatch(pattern):
        near = difflib.get_close_matches(pattern, [_LANGUAGE], n=1)
        meant = near[0] if near else f"*.{pattern or 'q_proj'}"
        return (
            f"names no linear layer: full names have dots (model.visual.blocks.0.attn.qkv); give "
            f"`{_LANGUAGE}`, or a pattern of full names; did you mean `{meant}`?"
        )
    end = re.split(r"[*?\[\]]", pattern)[-1]
    last = end.rpartition(".")[2]
    is_whole = "." in end
    if not words or not last:
        return ""
    if any(word == last if is_whole else word.endswith(last) for word in words):
        return ""
    some = ", ".join(sorted(words)[:_MOST_NAMES])
    return (
        f"matches no layer of the model: none ends with `{last}`{did_you_mean(last, words)} "
        f"(some that there are: {some})"
    )
