"""Patterns of names that come near to one that matches nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 3
_CUTOFF = 0.4


def near_patterns(pattern: str, words: Iterable[str], names: Iterable[str]) -> list[str]:
    """What may have been meant, the nearest first; empty if nothing is near.

    Args:
        pattern: with `*`, `?` and `[..]`, that matches none of `names`.
        words: that may stand in a pattern's place.
        names: dotted. Where the pattern begins with `*.`, their ends are compared, as many words
            of them as the pattern has behind its last `*`.
    """
    candidates = {*words, *names}
    head, _, tail = pattern.rpartition("*")
    if pattern.startswith("*.") and tail.startswith("."):
        num_words = tail.count(".")
        ends = (name.split(".")[-num_words:] for name in names)
        candidates = {*words, *(f"{head}*.{'.'.join(end)}" for end in ends)}
    return difflib.get_close_matches(pattern, sorted(candidates), _MOST, cutoff=_CUTOFF)
