"""Records as JSON values, and their reader; fields that a record lacks have defaults."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

# Not msgspec, although it decodes a completion record in 5 us instead of 240 (pydantic: 26 us, and
# 0.3 s to import). The worker reads the same records with the standard library only, so this
# reader would stay next to it, and so would the checks of values that may be forged.
RecordT = TypeVar("RecordT")


def known_fields(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that are fields of a dataclass: other versions may have more.

    Fields that they lack have defaults.
    """
    names = {field.name for field in fields(cls)}
    return {key: value for key, value in values.items() if key in names}


def record_to_json(value: Any) -> Any:
    """Return a record, or a part of one, as JSON values."""
    if dataclasses.is_dataclass(value):
        return {f.name: record_to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: record_to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [record_to_json(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def record_from_json(cls: type[RecordT], values: Any) -> RecordT:
    """Return the record of class `cls` that `record_to_json` described, in any version.

    Keys of later versions are ignored; keys that earlier versions lack have their defaults.

    Raises:
        ValueError, TypeError: it is damaged, or lacks a key without a default.
    """
    if not isinstance(values, Mapping):
        message = f"the record must be a mapping of names to values, not {type(values).__name__}"
        raise TypeError(message)
    hints = _hints(cast("Any", cls))
    known = known_fields(cls, values)
    return cls(**{key: _value_from_json(hints[key], value) for key, value in known.items()})


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _value_from_json(hint: Any, value: Any) -> Any:
    if hint is Path:
        return Path(value)
    if dataclasses.is_dataclass(hint):
        return record_from_json(cast("type[Any]", hint), value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, Sequence):
        return tuple(_value_from_json(arguments[0], item) for item in value)
    if origin is Mapping and arguments[0] is int:  # JSON has no other keys
        return {int(key): item for key, item in value.items()}
    if origin is Mapping and dataclasses.is_dataclass(arguments[1]):
        return {key: _value_from_json(arguments[1], item) for key, item in value.items()}
    if isinstance(value, Mapping) and arguments and dataclasses.is_dataclass(arguments[0]):
        return _value_from_json(arguments[0], value)  # it may be null
    return value
