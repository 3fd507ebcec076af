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
from slurm_jobs.shared.processors.model_types import MODEL_CONFIG, SMALL_VLM
from slurm_jobs.spec.graph import CheckedSpec
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.value_types import NodePathMarker, ProgramMarker, TextMarker, check_one_line
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at

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

_WRITE_A_PATH = "write a path of a file system that the nodes have"
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
) -> Iterator[Problem]:
    """Yield every path that is invalid, or does not exist but must.

    With `runs_here` the jobs run on this machine, so their programs must exist here too.
    """
    for item in marked:
        message = _message(item, exists, runs_here=runs_here)
        if message is not None:
            yield problem_at(document, item.path, f"{path_text(item.path)}: {message}")


def _message(item: MarkedString, exists: Callable[[str], bool], *, runs_here: bool) -> str | None:
    given, resolved = item.given, item.resolved
    if isinstance(item.marker, TextMarker):
        return item.problem or _line_problem(item)
    if not given or item.problem:
        return item.problem or "the path is empty"
    references = (match for match in REFERENCE.finditer(given) if referenced_stage(match[1]))
    reference = next(references, None)
    if reference is not None:
        if "config" not in item.path:
            return f"`{reference[0]}` is replaced in the config of a stage only"
        return f"`{reference[0]}` must be at the start of the path" if reference.start() else None
    if _ADDRESS.match(given) and not isinstance(item.marker, AddressMarker):
        local = re.fullmatch(r"(?i)file:(?://(?:localhost)?)?(/.*)", given)
        remedy = f"write `{local[1]}`" if local else _WRITE_A_PATH
        return f"`{given}` is an address, and a path is needed: {remedy}"
    if "$" in given and (hidden := _ADDRESS_WITHIN.search(resolved)):
        address = hidden[0].strip("/")
        return f"a variable in `{given}` holds an address ({address}//...); {_WRITE_A_PATH}"
    if isinstance(item.marker, NodePathMarker) or exists(resolved):
        return None
    shown = f" (`{given}`, relative to the file)"
    if given[:1] in {"/", "~"} or "$" in given:
        shown = f" (written as `{given}`)"
    nothing = f"nothing at {resolved}{'' if given == resolved else shown}"
    if isinstance(item.marker, ProgramMarker):
        is_missed = runs_here and "/" in resolved
        return f"{nothing}, and the jobs run on this machine" if is_missed else None
    if item.marker.must_exist:
        return f"{nothing}{_other_hint(item)}"
    placeholder = _PLACEHOLDER.search(given)
    if placeholder is None:
        return None
    return (
        f"`{placeholder[0]}` would be part of the folder's name: only `~`, `$NAME` and `${{NAME}}` "
        "are replaced in a path (`$USER` is your name); make the folder first if that is its name"
    )


def _line_problem(item: MarkedString) -> str | None:
    """Return what is wrong with an option of sbatch in which variables were replaced."""
    try:
        check_one_line(item.resolved)
    except ValueError as error:
        return f"with its variables replaced, {error}"
    return None


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
    return f"; names on a hub are not accepted: {folder}"


def runs_dir_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the problem of a `runs_dir` in which no run can be created."""
    for item in spec.expanded:
        if item.path == ("runs_dir",) and item.given:
            reason = spec.files.write_obstacle(item.resolved)
            if reason:
                message = f"no run can be made in {item.resolved}: {reason}"
                yield spec.problem(item.path, message)


def unexpanded_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield a note for each path, or name of a variable alone, whose variables stay as written.

    These are the values of `environment` and the config of a user's own function.
    """
    values = spec.document.value
    holders: list[tuple[KeyPath, Any, str]] = [
        (("environment",), values.get("environment"), _IN_ENVIRONMENT)
    ]
    for name, view in spec.views.items():
        place: KeyPath = ("stages", name)
        holders.append(((*place, "environment"), view.keys.get("environment"), _IN_ENVIRONMENT))
        if view.run is not None and ":" in view.run:
            holders.append(((*place, "config"), view.config, _IN_OWN_CONFIG))
    for place, holder, why in holders:
        for path, text in _texts(holder, place):
            variable = _SHELL_NAME.search(text)
            is_path = "/" in text and not any(char.isspace() for char in text)
            if variable and (is_path or variable[0] == text):
                yield spec.problem(path, f"`{variable[0]}` stays as it is written: {why}")


def _texts(values: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, (dict, list)):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from _texts(value, (*path, key))


# Check that patterns of linear layers match some, as `find_targets` of `pipeline` does.
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


def target_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield patterns that match no layer of any model or of this one, or its embeddings."""
    for name, view in spec.views.items():
        if view.run != "train":
            continue
        paths = {i.path[2:]: i.resolved for i in spec.expanded if i.path[:2] == ("stages", name)}
        words = _last_words(paths.get(_MODEL), spec.files)
        tied = _tied_head(paths, spec.files)
        patterns = list(_patterns(view.config or {}))
        for place, pattern in patterns:
            wrong = _wrong(pattern, words)
            if not wrong and place[1] != "skip" and tied and fnmatch.fnmatchcase(tied, pattern):
                skip = (place[0], "skip")
                skipped = [other for at, other in patterns if at[:2] == skip]
                if not any(fnmatch.fnmatchcase(tied, other) for other in skipped):
                    wrong = (
                        f"matches {tied}, which is the embeddings by another name "
                        f"(tie_word_embeddings in the model's {MODEL_CONFIG}), and has no place of "
                        f"its own in an export; give `{_LANGUAGE}`, or patterns that leave {tied} "
                        "out"
                    )
            if wrong:
                yield spec.problem(("stages", name, "config", *place), f"{pattern!r} {wrong}")


def _tied_head(paths: Mapping[KeyPath, str], files: Files) -> str:
    """Return the output head's full name if it is certain that it is the embeddings."""
    for path in (_MODEL, _LANGUAGE_MODEL):
        values = files.json_values(f"{paths[path]}/{MODEL_CONFIG}") if path in paths else {}
        is_small = values.get("model_type") == SMALL_VLM
        language = values.get("language") if is_small else values
        if isinstance(language, Mapping) and language.get("tie_word_embeddings") is True:
            return f"{_LANGUAGE}.{_HEAD}" if is_small or path == _LANGUAGE_MODEL else _HEAD
    return ""


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
    weights = files.json_values(f"{folder}/{_INDEX}").get("weight_map") if folder else None
    names = weights if isinstance(weights, dict) else {}
    words = {name.split(".")[-2] for name in names if name.endswith(".weight")}
    return frozenset({*words, _HEAD} if words else ())


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
        f"(some of its layers: {some})"
    )
