"""Paths, model references and stage references among validated values. PURE.

Types mark strings (`InputPath`, `OutputPath`), so that paths of all models become absolute in one
place.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel

from slurm_jobs.common.config_values import AddressMarker, PathMarker
from slurm_jobs.common.errors import PathExpansionError
from slurm_jobs.common.references import REFERENCE, referenced_stage
from slurm_jobs.spec.yaml_values import Path


@dataclasses.dataclass(frozen=True, slots=True)
class NodePathMarker(PathMarker):
    """Mark of a path whose `$VARIABLES` and `~` are those of the compute node."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramMarker(PathMarker):
    """Mark of a program: looked up on PATH if it has no slash, else a path."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MarkedString:
    """String that its type marks as a path."""

    path: Path
    """Place of the value."""
    marker: PathMarker
    given: str
    resolved: str
    problem: str = ""
    """Reason why it could not be expanded; `resolved` is then the raw value."""


def absolute(text: str, base_dir: str) -> str:
    """Return `text` as an absolute path; keep a leading reference to a stage."""
    match = REFERENCE.match(text)
    is_reference = match is not None and referenced_stage(match[1]) is not None
    return text if is_reference else _normal(PurePosixPath(base_dir, text))


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts[-1:] = []
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Meaning of a relative path, a `~` or a `$VARIABLE`."""

    base_dir: str
    """Absolute folder of the file that contains the values."""
    expand: Callable[[str], str]
    """Function that expands `~` and `$NAME` in a path; raises PathExpansionError for an unknown
    name."""


def resolve_marked(
    target: Any, values: Any, around: Surroundings, *, path: Path = ()
) -> tuple[Any, list[MarkedString]]:
    """Make marked strings absolute in plain `values` of the form that `target` describes.

    Values of another form are kept unchanged.

    Returns:
        New values, and every marked string found.
    """
    found: list[MarkedString] = []

    def visit(hint: Any, value: Any, here: Path, markers: tuple[Any, ...]) -> Any:
        if typing.get_origin(hint) is typing.Annotated:
            inner, *metadata = typing.get_args(hint)
            return visit(inner, value, here, (*markers, *metadata))
        if value is None:
            return None
        if typing.get_origin(hint) in {typing.Union, types.UnionType}:
            branches = [a for a in typing.get_args(hint) if a is not type(None)]
            return visit(_branch(branches, value), value, here, markers)
        if isinstance(value, str):
            marker = next((m for m in markers if isinstance(m, PathMarker)), None)
            if marker is None:
                return value
            try:
                resolved, problem = _resolved(value, marker, around), ""
            except PathExpansionError as error:
                resolved, problem = value, str(error)
            item = MarkedString(
                path=here, marker=marker, given=value, resolved=resolved, problem=problem
            )
            found.append(item)
            return resolved
        if isinstance(value, dict):
            return {k: visit(_member(hint, k), v, (*here, k), ()) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            item = (typing.get_args(hint) or (Any,))[0]
            return [visit(item, v, (*here, i), ()) for i, v in enumerate(value)]
        return value

    return visit(target, values, path, ()), found


def _resolved(given: str, marker: PathMarker, around: Surroundings) -> str:
    if isinstance(marker, NodePathMarker):
        is_for_node = given.startswith("~") or (given[:1] == "$" and given[:2] != "$$")
        return given if is_for_node else absolute(given, around.base_dir)
    if isinstance(marker, AddressMarker) and ("://" in given or given.startswith("pipe:")):
        return given
    text = around.expand(given)
    if isinstance(marker, ProgramMarker) and "/" not in text:
        return text
    return absolute(text, around.base_dir)


def _branch(branches: list[Any], value: Any) -> Any:
    for branch in branches:
        is_annotated = typing.get_origin(branch) is typing.Annotated
        bare = typing.get_args(branch)[0] if is_annotated else branch
        origin = typing.get_origin(bare) or bare
        takes_keys = origin is dict or _has_fields(bare)
        if (
            (isinstance(value, dict) and takes_keys)
            or (isinstance(value, str) and origin is str)
            or (origin is typing.Literal and value in typing.get_args(bare))
            or (isinstance(value, (list, tuple)) and origin in {list, tuple})
        ):
            return branch
    return branches[0]


def _has_fields(hint: Any) -> bool:
    """Check whether a type is a dataclass or a pydantic model."""
    is_model = inspect.isclass(hint) and issubclass(hint, BaseModel)
    return is_model or dataclasses.is_dataclass(hint)


def _member(hint: Any, key: str) -> Any:
    if typing.get_origin(hint) is dict:
        return typing.get_args(hint)[1]
    if _has_fields(hint):
        return _hints(hint).get(key, Any)
    return Any


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the types of a class's fields, cached because each value needs them."""
    return typing.get_type_hints(cls, include_extras=True)


def references(
    values: Any, path: Path = (), pattern: re.Pattern[str] = REFERENCE
) -> list[tuple[Path, str]]:
    """Yield every `${...}` in the strings of `values`: its place, and the text in the braces."""
    if isinstance(values, str):
        return [(path, inner) for inner in pattern.findall(values)]
    if isinstance(values, dict):
        items: Iterable[tuple[str | int, Any]] = values.items()
    else:
        items = enumerate(values) if isinstance(values, (list, tuple)) else ()
    return [hit for key, value in items for hit in references(value, (*path, key), pattern)]
