"""Suggestions for a pattern of names that matches nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 3
_CUTOFF = 0.4


def near_patterns(pattern: str, words: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return likely alternatives, the nearest first; empty if nothing is near.

    Args:
        pattern: Pattern with `*`, `?` and `[..]` that matches none of `names`.
        words: Keywords that are allowed instead of a pattern.
        names: Dotted names. If the pattern begins with `*.`, the ends of names are compared,
            with as many words as the pattern has after its last `*`.
    """
    candidates = {*words, *names}
    head, _, tail = pattern.rpartition("*")
    if pattern.startswith("*.") and tail.startswith("."):
        num_words = tail.count(".")
        ends = (name.split(".")[-num_words:] for name in names)
        candidates = {*words, *(f"{head}*.{'.'.join(end)}" for end in ends)}
    return difflib.get_close_matches(pattern, sorted(candidates), _MOST, cutoff=_CUTOFF)
