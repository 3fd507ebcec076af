"""Finds the paths, model references and stage references among validated values. PURE.

Types say what a string is (`InputPath`, `ModelRef`), so that a path becomes
absolute in one place, whatever model it stands in.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel

from slurm_jobs.common.config_values import ModelMarker, PathMarker
from slurm_jobs.spec.yaml_values import Path

Marker = PathMarker | ModelMarker
REFERENCE = re.compile(r"\$\{([^}]*)\}")
_OUTPUT_OF = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\.output_dir")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MarkedString:
    """A string that its type marks as a path or a model."""

    path: Path
    """Where it stands."""
    marker: Marker
    given: str
    resolved: str


def absolute(text: str, base_dir: str) -> str:
    """`text` as an absolute path; what begins with `$` is left for the node to expand."""
    if text.startswith("$"):
        return text
    if text.startswith("~"):
        return text
    return _normal(PurePosixPath(base_dir, text))


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts[-1:] = []
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def resolve_marked(
    target: Any, values: Any, *, base_dir: str, exists: Callable[[str], bool], path: Path = ()
) -> tuple[Any, list[MarkedString]]:
    """Make marked strings absolute in plain `values` that were validated against `target`.

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
            return _resolve(value, markers, here)
        if isinstance(value, dict):
            return {k: visit(_member(hint, k), v, (*here, k), ()) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            item = (typing.get_args(hint) or (Any,))[0]
            return [visit(item, v, (*here, i), ()) for i, v in enumerate(value)]
        return value

    def _resolve(value: str, markers: tuple[Any, ...], here: Path) -> str:
        for marker in markers:
            if isinstance(marker, (PathMarker, ModelMarker)):
                resolved = absolute(value, base_dir)
                if isinstance(marker, ModelMarker) and not _is_local(value, resolved, exists):
                    resolved = value
                found.append(
                    MarkedString(path=here, marker=marker, given=value, resolved=resolved)
                )
                return resolved
        return value

    return visit(target, values, path, ()), found


def _is_local(given: str, resolved: str, exists: Callable[[str], bool]) -> bool:
    """A model is a path where it looks like one or where something lies there, else a hub name."""
    return given.startswith(("/", "./", "../", "$", "~")) or exists(resolved)


def _branch(branches: list[Any], value: Any) -> Any:
    for branch in branches:
        bare = typing.get_args(branch)[0] if typing.get_origin(branch) is typing.Annotated else branch
        origin = typing.get_origin(bare) or bare
        if isinstance(value, dict) and (
            origin is dict
            or dataclasses.is_dataclass(bare)
            or (isinstance(bare, type) and issubclass(bare, BaseModel))
        ):
            return branch
        if isinstance(value, str) and origin is str:
            return branch
        if isinstance(value, (list, tuple)) and origin in {list, tuple}:
            return branch
    return branches[0]


def _member(hint: Any, key: str) -> Any:
    if typing.get_origin(hint) is dict:
        return typing.get_args(hint)[1]
    if dataclasses.is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return typing.get_type_hints(hint, include_extras=True).get(key, Any)
    return Any


def references(values: Any, path: Path = ()) -> list[tuple[Path, str]]:
    """Every `${...}` in the strings of `values`: where it stands, and what is between the braces."""
    if isinstance(values, str):
        return [(path, inner) for inner in REFERENCE.findall(values)]
    if isinstance(values, dict):
        return [hit for key, value in values.items() for hit in references(value, (*path, key))]
    if isinstance(values, (list, tuple)):
        return [hit for i, value in enumerate(values) for hit in references(value, (*path, i))]
    return []


def referenced_stage(inner: str) -> str | None:
    """The stage that `${stage.output_dir}` names; None if the reference is of no known form."""
    match = _OUTPUT_OF.fullmatch(inner)
    return match[1] if match else None
