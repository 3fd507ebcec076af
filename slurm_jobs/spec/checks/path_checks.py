"""Checks of the paths in a spec or profile: missing, empty, unknown variables. PURE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.config import AddressMarker
from slurm_jobs.formats.configs.output_references import REFERENCE, referenced_stage
from slurm_jobs.formats.configs.stages import ChatTemplateName
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.value_types import NodePathMarker, ProgramMarker, TextMarker, check_one_line
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at

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
