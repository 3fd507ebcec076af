"""Values of a YAML file, and the place of each and of a problem with it. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.written_values import printable

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of a file down to a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A place in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlDocument:
    """The values of a file, their places, and what is wrong with its YAML."""

    file: str
    value: Any
    key_places: dict[KeyPath, Place] = field(default_factory=dict)
    """Of the key of each value, or of the item in a list."""
    value_places: dict[KeyPath, Place] = field(default_factory=dict)
    sources: dict[KeyPath, str] = field(default_factory=dict)
    """Origin of the values that are not from the file."""
    refused: frozenset[KeyPath] = frozenset()
    """Values with a refused tag or merge key: what they should have been is unknown."""
    problems: tuple[Problem, ...] = ()
    repeated: dict[Problem, KeyPath] = field(default_factory=dict)
    """Keys that a mapping has twice, by those of the problems that report them."""


def problem_at(
    document: YamlDocument, path: KeyPath, message: str, *, at_key: bool = False
) -> Problem:
    """Return a problem at the nearest place that the file knows for `path`.

    A missing value has the place of the key that lacks it. Indented lines of the message are kept.
    """
    file, line, column = document.file, 1, 1
    for length in range(len(path), -1, -1):
        here = path[:length]
        places = document.key_places if at_key or length < len(path) else document.value_places
        place = places.get(here)
        if place is not None:
            line, column = place.line, place.column
            file = document.sources.get(here, file)
            break
    text = "\n  ".join(map(printable, message.split("\n  ")))
    return Problem(file=file, line=line, column=column, message=text, path=path)


def path_text(path: KeyPath) -> str:
    """Return a path as a user writes it: `stages.train.setup[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def was_set(document: YamlDocument, path: KeyPath, place: KeyPath) -> bool:
    """Check whether `place`, below `path`, was set on the command line, but not all of `path`."""
    lengths = range(len(path) + 1, len(place) + 1)
    return any(place[:length] in document.sources for length in lengths)
