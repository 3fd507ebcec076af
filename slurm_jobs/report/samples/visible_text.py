"""Untrusted text, made safe to display.

The text of a data set comes from its manifest. It must not move a terminal's cursor, set its
title, change the direction of writing or hide words: such characters are written as their codes.
"""

from __future__ import annotations

import unicodedata

from slurm_jobs.report.samples.sample_values import Image

_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional marks, joiners), surrogates, unassigned; line separators."""


def visible(text: str) -> str:
    r"""Replace every invisible character by its code: `\x1b`, `\u202e`."""
    characters = []
    for char in text:
        code = ord(char)
        if not is_hidden(char):
            shown = char
        elif char in _ESCAPES:
            shown = _ESCAPES[char]
        elif code < 0x100:
            shown = f"\\x{code:02x}"
        else:
            shown = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        characters.append(shown)
    return "".join(characters)


def is_hidden(char: str) -> bool:
    """Check whether `visible` replaces it."""
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def image_text(image: Image) -> str:
    """Return the sizes of an image: `640x480 stored as 4 of 384x384, 384x288`."""
    counts: dict[str, int] = {}
    for width, height in image.stored:
        size = f"{width}x{height}"
        counts[size] = counts.get(size, 0) + 1
    stored = ", ".join(size if num == 1 else f"{num} of {size}" for size, num in counts.items())
    return f"{image.original[0]}x{image.original[1]} stored as {stored or 'nothing'}"
