"""Paths, model references and stage references among validated values.

Types mark strings (`InputPath`, `OutputPath`), so that paths of all models become absolute in
one place. PURE.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from slurm_jobs.base.errors import PathExpansionError
from slurm_jobs.formats.config import AddressMarker, PathMarker
from slurm_jobs.formats.configs.output_references import REFERENCE, referenced_stage
from slurm_jobs.spec.model_keys import fields_of, is_model
from slurm_jobs.spec.value_types import NodePathMarker, ProgramMarker, TextMarker
from slurm_jobs.spec.yaml.document import KeyPath


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MarkedString:
    """String that its type marks as a path, or text in which variables were replaced."""

    path: KeyPath
    """Place of the value."""
    marker: PathMarker
    given: str
    resolved: str
    problem: str = ""
    """Reason why it could not be expanded; `resolved` is then the raw value."""


def absolute(text: str, base_dir: str) -> str:
    """Return `text` as an absolute path; keep a leading reference to a stage."""
    match = REFERENCE.match(text)
    if match is not None and referenced_stage(match[1]) is not None:
        return text
    return "/" + posixpath.normpath(posixpath.join(base_dir, text)).lstrip("/")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Meaning of a relative path, a `~` or a `$VARIABLE`."""

    base_dir: str
    """Absolute folder of the file that contains the values."""
    expand: Callable[[str], str]
    """Function that expands `~` and `$NAME` in a path; raises PathExpansionError for an unknown
    name."""
    expand_text: Callable[[str], str]
    """Function that expands `$NAME` in other text; raises the same."""


def resolve_marked(
    target: Any, values: Any, around: Surroundings, *, path: KeyPath = ()
) -> tuple[Any, list[MarkedString]]:
    """Make marked strings absolute in plain `values` of the form that `target` describes.

    Values of another form are kept unchanged.

    Returns:
        New values, and every marked string found.
    """
    marked: list[MarkedString] = []

    def visit(hint: Any, value: Any, here: KeyPath, markers: tuple[Any, ...]) -> Any:
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
            is_plain_text = isinstance(marker, TextMarker) and resolved == value
            if not is_plain_text or problem:
                marked.append(
                    MarkedString(
                        path=here, marker=marker, given=value, resolved=resolved, problem=problem
                    )
                )
            return resolved
        arguments = typing.get_args(hint) or (Any,)
        if isinstance(value, dict):
            fields = fields_of(hint)
            other = arguments[-1] if typing.get_origin(hint) is dict else Any
            return {k: visit(fields.get(k, other), v, (*here, k), ()) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [visit(arguments[0], v, (*here, i), ()) for i, v in enumerate(value)]
        return value

    return visit(target, values, path, ()), marked


def _resolved(given: str, marker: PathMarker, around: Surroundings) -> str:
    if isinstance(marker, TextMarker):
        return around.expand_text(given)
    if isinstance(marker, NodePathMarker):
        is_for_node = given.startswith("~") or (given[:1] == "$" and given[:2] != "$$")
        return given if is_for_node else absolute(given, around.base_dir)
    if isinstance(marker, AddressMarker) and ("://" in given or given.startswith("pipe:")):
        return given
    text = around.expand(given)
    is_on_path = isinstance(marker, ProgramMarker) and "/" not in text
    return text if is_on_path else absolute(text, around.base_dir)


def _branch(branches: list[Any], value: Any) -> Any:
    """Return the branch of a union that takes a value; the first if none does."""
    for branch in branches:
        is_annotated = typing.get_origin(branch) is typing.Annotated
        bare = typing.get_args(branch)[0] if is_annotated else branch
        origin = typing.get_origin(bare) or bare
        if (
            (isinstance(value, dict) and (origin is dict or is_model(bare)))
            or (isinstance(value, str) and origin is str)
            or (origin is typing.Literal and value in typing.get_args(bare))
            or (isinstance(value, (list, tuple)) and origin in {list, tuple})
        ):
            return branch
    return branches[0]


def references(
    values: Any, path: KeyPath = (), pattern: re.Pattern[str] = REFERENCE
) -> list[tuple[KeyPath, str]]:
    """Yield every `${...}` in the strings of `values`: its place, and the text in the braces."""
    if isinstance(values, str):
        return [(path, inner) for inner in pattern.findall(values)]
    if isinstance(values, dict):
        items: Iterable[tuple[str | int, Any]] = values.items()
    else:
        items = enumerate(values) if isinstance(values, (list, tuple)) else ()
    return [hit for key, value in items for hit in references(value, (*path, key), pattern)]
