"""Declaration of a stage's config, and its reconstruction on the compute node.

A config is a frozen dataclass of the standard library. On the login node pydantic validates the
user's YAML against it (types, ranges, unknown keys). The result is stored as JSON, with defaults
filled in and absolute paths. The compute node needs no validation: `build_config` only puts the
values back into dataclasses.
"""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.texts.did_you_mean import did_you_mean


@dataclasses.dataclass(frozen=True, slots=True)
class PathMarker:
    """Mark of a path: relative to the spec's file in the YAML, stored absolute.

    With `must_exist`, `check` searches for the path before anything is queued, unless the value
    refers to another stage's output (`${stage.output_dir}/file`).
    """

    must_exist: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AddressMarker(PathMarker):
    """Mark of a path or an address; an address (`scheme://...`) is kept unchanged."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Range of a number; pydantic and the JSON Schema take it from here."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Return pydantic's schema of the annotation, without an import of pydantic."""
        return {**handler(source), **self._given()}

    def _given(self) -> dict[str, float]:
        limits = {"ge": self.ge, "gt": self.gt, "le": self.le, "lt": self.lt}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def allow(self, value: float) -> bool:
        """Check whether a number is in the range."""
        return all(_COMPARE[name](value, limit) for name, limit in self._given().items())

    def __str__(self) -> str:
        return " and ".join(f"{_SIGNS[name]} {limit:g}" for name, limit in self._given().items())


_COMPARE = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}

Count = Annotated[int, Bounds(ge=1)]
"""Whole number from 1."""
CountOrZero = Annotated[int, Bounds(ge=0)]
"""Whole number from 0."""
Positive = Annotated[float, Bounds(gt=0)]
"""Number above 0."""
NotNegative = Annotated[float, Bounds(ge=0)]
"""Number from 0."""
Share = Annotated[float, Bounds(ge=0, le=1)]
"""Number from 0 to 1."""
ShareBelowOne = Annotated[float, Bounds(ge=0, lt=1)]
"""Number from 0, below 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class SomeKeysOf:
    """Mark of a mapping with some keys of a config; `with_keys_of` adds the other keys."""

    whole: type[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Validate the mapping as a whole config, and keep only the given keys."""
        return {
            "type": "function-wrap",
            "function": {"type": "no-info", "function": _keys_given},
            "schema": handler.generate_schema(self.whole),
        }


def _keys_given(values: Any, validate: Callable[[Any], Any]) -> dict[str, Any]:
    whole = validate(values)
    return {key: getattr(whole, key) for key in values}


InputPath = Annotated[str, PathMarker(must_exist=True)]
"""File or folder that must exist, or be another stage's output, before the stage starts."""
OutputPath = Annotated[str, PathMarker()]
"""File or folder that the stage may create."""
NamedPath = Annotated[str, PathMarker()]
"""Path that others are compared with; it may exist only on the nodes."""
DependencyKind = Literal["afterok", "afterany", "afternotok", "aftercorr"]
"""Kind of dependency, in Slurm's words."""
PathOrAddress = Annotated[str, AddressMarker()]
"""Path, or address such as `https://host/file`."""

ConfigT = TypeVar("ConfigT")


def build_config(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """Build the config dataclass `cls` from a resolved mapping, including nested ones.

    Raises:
        StageConfigError: `cls` needs a key that is missing, or does not know one. `check` finds
            that for built-in stages; the config of a function reaches the node unchecked.
    """
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", cls))}
    needed = (
        name
        for name, field in fields.items()
        if field.default is field.default_factory is dataclasses.MISSING
    )
    problems = [f"needs the key `{name}`" for name in needed if name not in values]
    problems += [
        f"has the unknown key `{key}`{did_you_mean(key, fields)}"
        for key in values
        if key not in fields
    ]
    if problems:
        message = f"`config` ({cls.__name__}) {', and '.join(problems)} (keys: {', '.join(fields)})"
        raise StageConfigError(message)
    hints = typing.get_type_hints(cls)
    return cls(**{key: _build_value(hints.get(key, Any), value) for key, value in values.items()})


def with_keys_of(config: ConfigT, given: Mapping[str, Any]) -> ConfigT:
    """Return `config` with the keys of `given` replaced by their values.

    Raises:
        StageConfigError: a key that it does not know.
    """
    values = {name: getattr(config, name) for name in typing.get_type_hints(type(config))}
    return build_config(type(config), {**values, **given})


class ConfigValuesError(ValueError):
    """Problems that a config's own check has found."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        """One message for each broken rule; each begins with the key that it is about."""
        super().__init__("\n".join(problems))


def problems_in(error: ValueError) -> tuple[str, ...]:
    """Return the messages of an error that a config's own check raised."""
    return error.problems if isinstance(error, ConfigValuesError) else (str(error),)


class CheckedConfig:
    """Base of configs whose bounds and own rules are checked when they are created."""

    __slots__ = ()

    def problems(self) -> Iterable[str | None]:
        """Return a message for each broken rule, with field, value and remedy; None is none."""
        return ()

    def __post_init__(self) -> None:
        """Check the bounds that the fields declare, then the config's own rules.

        Raises:
            ConfigValuesError: names every field out of bounds, or every broken rule.
        """
        hints = typing.get_type_hints(type(self), include_extras=True)
        values = {name: getattr(self, name) for name in hints}
        outside = [
            f"{name} is {values[name]}; allowed is {bounds}"
            for name, hint in hints.items()
            for bounds in _bounds_of(hint)
            if isinstance(values[name], (int, float)) and not bounds.allow(values[name])
        ]
        messages = ["; ".join(outside)] if outside else self.problems()
        problems = tuple(dict.fromkeys(message for message in messages if message))
        if problems:
            raise ConfigValuesError(problems)


def _bounds_of(hint: Any) -> list[Bounds]:
    if typing.get_origin(hint) is Annotated:
        return [entry for entry in typing.get_args(hint)[1:] if isinstance(entry, Bounds)]
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return [entry for branch in typing.get_args(hint) for entry in _bounds_of(branch)]
    return []


def _build_value(hint: Any, value: Any) -> Any:
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    branches = typing.get_args(hint) if is_union else (hint,)
    for branch in branches:
        origin, arguments = typing.get_origin(branch), typing.get_args(branch)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(branch):
            return build_config(typing.cast("type[Any]", branch), value)
        if isinstance(value, Mapping) and origin is dict:
            return {key: _build_value(arguments[1], entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)) and origin is tuple:
            return tuple(_build_value(arguments[0], entry) for entry in value)
        if branch is float and type(value) is int and int not in branches:
            return float(value)
    return value
