"""Resumes that the error of a stage names, as its record holds them.

They come from users' code, and from records in folders that others can write to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurm_jobs.base.json_values import is_line

_MOST_WAYS = 8
_MOST_WORDS = 40
_FLAGS = frozenset({"--update-spec", "--update-code", "--keep-complete"})
_WITH_VALUE = frozenset({"--set", "--again"})


def valid_ways(ways: Any) -> tuple[tuple[str, ...], ...]:
    """Return those of `ways` whose words are options of `resume`, and the first few of these."""
    if not isinstance(ways, Iterable) or isinstance(ways, str):
        return ()
    valid = []
    for way in ways:
        if isinstance(way, Iterable) and not isinstance(way, str):
            words = tuple(way)
            if _are_options(words):
                valid.append(words)
        if len(valid) == _MOST_WAYS:
            break
    return tuple(valid)


def _are_options(words: tuple[Any, ...]) -> bool:
    if len(words) > _MOST_WORDS or not all(map(is_line, words)):
        return False
    remaining = iter(words)
    for word in remaining:
        if word in _WITH_VALUE:
            if next(remaining, None) is None:
                return False
        elif word not in _FLAGS:
            return False
    return True
