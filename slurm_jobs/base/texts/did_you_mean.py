"""Suggestion of the known word that a misspelt one is nearest to."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for the nearest known word, or an empty text."""
    import difflib

    near = difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""
