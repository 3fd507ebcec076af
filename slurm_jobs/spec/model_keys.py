"""Keys of a model and their types, below any path, and whether a type accepts a value. PURE."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from slurm_jobs.formats.config import SomeKeysOf
from slurm_jobs.spec.yaml.document import KeyPath


def known_keys(target: Any, location: KeyPath) -> list[str]:
    """Return the keys of the model at `location` below `target`."""
    return list(fields_of(type_at(target, location)))


def type_at(target: Any, location: KeyPath) -> Any:
    """Return the declared type of the value at `location` below `target`."""
    for step in location:
        target = with_keys(target)
        fields, arguments = fields_of(target), typing.get_args(target) or (Any,)
        if fields:
            target = fields[str(step)]
        else:
            target = arguments[-1] if typing.get_origin(target) is dict else arguments[0]
    return target


def fields_of(target: Any) -> Mapping[str, Any]:
    """Return the keys of a model and their types; empty for other types."""
    target = with_keys(target)
    return _fields(target) if is_model(target) else {}


@cache
def _fields(model: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(model, include_extras=True)
    is_pydantic = issubclass(model, BaseModel)
    names = model.model_fields if is_pydantic else [f.name for f in dataclasses.fields(model)]
    return {name: hints[name] for name in names}


def places_of(target: Any, key: str) -> list[KeyPath]:
    """Return the places below `target` with this key, except in lists and user mappings."""
    places: list[KeyPath] = []
    for known, inner in fields_of(target).items():
        places += [(known,)] if known == key else []
        places += [(known, *below) for below in places_of(inner, key)]
    return places


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


def refusal(target: Any, location: KeyPath, value: Any) -> str | None:
    """Return why `target` refuses `value` at `location`; None if it accepts it.

    It is empty for a wrong kind of value, else the remedy from the model's own check.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_at(target, location))
        valid = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return ""
    holder, key = with_keys(type_at(target, location[:-1])), str(location[-1])
    if dataclasses.is_dataclass(holder):
        try:
            typing.cast("type[Any]", holder)(**{key: valid})
        except (TypeError, ValueError) as error:  # others may be missing, or wrong without others
            _, _, remedy = str(error).partition(": ")
            return remedy if str(error).startswith(f"{key} ") else None
    return None
