"""How a stage's config is declared, and how it is rebuilt on the compute node.

A config is a frozen dataclass of the standard library. The login node has
pydantic validate the user's YAML against it (types, ranges, unknown keys) and
stores the result, defaults filled in and paths made absolute, as JSON. The
compute node, which has that JSON, needs no validation: `build_config` only
puts the values back into dataclasses.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar


@dataclasses.dataclass(frozen=True, slots=True)
class PathMarker:
    """Marks a string as a path: taken relative to the spec's file, stored absolute.

    `must_exist` asks `check` to look for it before anything is queued, unless
    the value refers to another stage's output (`${stage.output_dir}/file`).
    """

    must_exist: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMarker:
    """Marks a string as a model or processor: a path where one exists there, else a hub name."""


InputPath = Annotated[str, PathMarker(must_exist=True)]
"""A file or folder that must exist, or be another stage's output, before the stage starts."""
OutputPath = Annotated[str, PathMarker()]
"""A file or folder that the stage may create."""
ModelRef = Annotated[str, ModelMarker()]
"""A local model or processor folder, or the name of one on a hub."""

ConfigT = TypeVar("ConfigT")


def build_config(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """Build the config dataclass `cls` from a resolved mapping, nested dataclasses included.

    Raises:
        TypeError: a key that `cls` does not know (only a bug can cause that here).
    """
    hints = typing.get_type_hints(cls)
    return cls(**{key: _build_value(hints.get(key, Any), value) for key, value in values.items()})


def _build_value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        return _build_union(typing.get_args(hint), value)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build_config(typing.cast("type[Any]", hint), value)
    if origin is tuple and isinstance(value, (list, tuple)):
        item = typing.get_args(hint)[0]
        return tuple(_build_value(item, entry) for entry in value)
    if origin is dict and isinstance(value, Mapping):
        item = typing.get_args(hint)[1]
        return {key: _build_value(item, entry) for key, entry in value.items()}
    if hint is float and isinstance(value, int):
        return float(value)
    return value


def _build_union(hints: tuple[Any, ...], value: Any) -> Any:
    for hint in hints:
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
            return _build_value(hint, value)
        if isinstance(value, (list, tuple)) and typing.get_origin(hint) is tuple:
            return _build_value(hint, value)
    return value
