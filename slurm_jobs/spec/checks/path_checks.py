"""Checks of the paths in a spec or profile: missing, empty, unknown variables. PURE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from slurm_jobs.common.config_values import AddressMarker
from slurm_jobs.common.errors import Problem
from slurm_jobs.common.references import REFERENCE, referenced_stage
from slurm_jobs.common.stage_config.preprocess import ChatTemplateName
from slurm_jobs.spec.graph import Views
from slurm_jobs.spec.markers import MarkedString, NodePathMarker, ProgramMarker
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

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
    holders: list[tuple[Path, Any, str]] = [
        (("environment",), values.get("environment"), _IN_ENVIRONMENT)
    ]
    for name, view in views.items():
        place: Path = ("stages", name)
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


def _texts(values: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _texts(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _texts(value, (*path, index))
