"""Keys of a model and their types, below any path; whether a type accepts a value. PURE."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from slurm_jobs.common.config_values import SomeKeysOf
from slurm_jobs.spec.yaml_values import Path


def known_keys(target: Any, location: Path) -> list[str]:
    """Return the keys of the model at `location` below `target`."""
    return list(fields_of(type_at(target, location)))


def type_at(target: Any, location: Path) -> Any:
    """Return the declared type of the value at `location` below `target`."""
    for step in location:
        target = _step_into(with_keys(target), step)
    return target


def fields_of(target: Any) -> Mapping[str, Any]:
    """Return the keys of a model and their types; empty for other types."""
    target = with_keys(target)
    return _fields(target) if is_model(target) else {}


@cache
def _fields(model: Any) -> Mapping[str, Any]:
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    hints = typing.get_type_hints(model, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(model)}


def places_of(target: Any, key: str) -> list[Path]:
    """Return the places below `target` with this key, except in lists and user mappings."""
    found: list[Path] = []
    for known, inner in fields_of(target).items():
        found += [(known,)] if known == key else []
        found += [(known, *below) for below in places_of(inner, key)]
    return found


def with_keys(target: Any) -> Any:
    """Return a type without its wrappers; of a union the branch that has keys, else the first."""
    if typing.get_origin(target) is typing.Annotated:
        bare, *marks = typing.get_args(target)
        part = next((mark for mark in marks if isinstance(mark, SomeKeysOf)), None)
        return with_keys(bare) if part is None else part.whole
    if typing.get_origin(target) not in {typing.Union, types.UnionType}:
        return target
    branches = [with_keys(a) for a in typing.get_args(target) if a is not type(None)]
    return next((b for b in branches if is_model(b)), branches[0])


def is_model(target: Any) -> bool:
    """Check whether a type has known keys."""
    is_pydantic = isinstance(target, type) and issubclass(target, BaseModel)
    return is_pydantic or dataclasses.is_dataclass(target)


def refusal(target: Any, location: Path, value: Any) -> str | None:
    """Return why `target` refuses `value` at `location`; None if it accepts it.

    It is empty for a wrong kind of value, else the remedy from the model's own check.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_at(target, location))
        found = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return ""
    holder, key = with_keys(type_at(target, location[:-1])), str(location[-1])
    if dataclasses.is_dataclass(holder):
        try:
            typing.cast("type[Any]", holder)(**{key: found})
        except (TypeError, ValueError) as error:  # others may be missing, or wrong without others
            said = str(error)
            return said.partition(": ")[2] if said.startswith(f"{key} ") else None
    return None


def _step_into(target: Any, step: str | int) -> Any:
    fields = fields_of(target)
    if fields:
        return fields[str(step)]
    arguments = typing.get_args(target) or (Any,)
    return arguments[-1] if typing.get_origin(target) is dict else arguments[0]
