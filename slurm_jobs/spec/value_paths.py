"""Which of some values the words of an error mean, or a location that pydantic gives. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from slurm_jobs.spec.yaml_values import Path


def known_part(values: Any, location: Iterable[str | int]) -> Path:
    """The part of pydantic's location that exists in the values (it adds branches of unions)."""
    path: list[str | int] = []
    for step in location:
        if isinstance(values, dict) and step in values:
            values = values[step]
        elif isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]  # the same words, another type for mypy
        else:
            continue
        path.append(step)
    return tuple(path)


def named_first(error: str, values: Any) -> Path:
    """The key that a config's own check names in its first word (`num_steps is 0: ...`)."""
    return _named(error.partition(" ")[0], values)


def named_in(error: str, values: Any) -> list[Path]:
    """Every key that it names; what is about `phases.1` means that phase's keys before others."""
    first = named_first(error, values)
    holders = [first[:length] for length in range(len(first), -1, -1)]
    found = (_named(word, values, holders) for word in re.findall(r"\w[\w.]*\w", error))
    return [path for path in found if path]


def _named(word: str, values: Any, holders: Sequence[Path] = ((),)) -> Path:
    """Where `batching.kind` stands among `values`: below `batching`, or beside it by itself.

    `phases.1.learn` stands in the second entry of a list. Of several `holders` the first that has
    it is meant.
    """
    steps: Path = tuple(int(s) if s.isdecimal() else s for s in word.split("."))
    paths = ((*holder, *part) for part in (steps, steps[-1:]) for holder in holders)
    return next((path for path in paths if known_part(values, path) == path), ())
