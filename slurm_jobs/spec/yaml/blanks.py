"""Characters of a spec that only look like a space, or are invisible. PURE.

They come from web pages and word processors, from which text is copied.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import yaml

from slurm_jobs.spec.yaml.tabs_as_blanks import SpecLoader

ODD = "\u00a0\u1680\u180e\u2000-\u200f\u202a-\u202f\u205f-\u2064\u3000\ufeff"
"""Spaces other than U+0020, characters without width, and marks of direction."""
_ODD_ANYWHERE = re.compile(f"[{ODD}]")
_ODD_ENDS = re.compile(f"^[{ODD}]|[{ODD}]$")
_ODD_AT_START = re.compile(f"[ ]*(?:- +)*(?:[\\w.-]+:|-)?(?P<odd>[{ODD}])")
"""Odd blank in the indentation of a line, after its dash, or after its key's colon."""


def odd_blanks(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and message of odd blanks that have become part of a key or value.

    In quotes, in block text and between words they are intended. At the ends of a plain text, in a
    key without quotes, or where YAML wants a space, they never are.
    """
    if not _ODD_ANYWHERE.search(text):
        return
    lines = _lines(text)
    is_key = False
    for token in yaml.scan(text, SpecLoader):
        if isinstance(token, yaml.ScalarToken) and token.plain:
            line, start = lines[token.start_mark.line], token.start_mark.column
            is_one_line = token.start_mark.line == token.end_mark.line
            plain = line[start : token.end_mark.column if is_one_line else None]
            odd = (_ODD_ANYWHERE if is_key else _ODD_ENDS).search(plain)
            position = None if odd is None else start + odd.start()
            at_start = _ODD_AT_START.match(line)
            if at_start is not None and at_start.start("odd") >= start:
                position = at_start.start("odd")
            if position is not None:
                yield token.start_mark.line + 1, position + 1, _message(line[position])
        is_key = isinstance(token, yaml.KeyToken)


def odd_blank_before(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark, str] | None:
    """Return the odd blank at which the parser stopped, on its line or on the two before."""
    mark = error.problem_mark or error.context_mark
    if mark is None or not _ODD_ANYWHERE.search(text):
        return None
    lines = _lines(text)
    for number in range(min(mark.line, len(lines) - 1), max(mark.line - 3, -1), -1):
        match = _ODD_AT_START.match(lines[number])
        if match is not None:
            place = yaml.Mark(mark.name, 0, number, match.start("odd"), None, 0)
            return place, _message(match["odd"])
    return None


def _lines(text: str) -> list[str]:
    """Return the lines; PyYAML counts no column for a byte order mark before the first."""
    return text.removeprefix("\ufeff").splitlines()


def _message(character: str) -> str:
    name = unicodedata.name(character, "a character without a name").lower()
    is_space = unicodedata.category(character) == "Zs"
    remedy = "is where YAML needs a space; type one" if is_space else "is invisible; remove it"
    return f"the character U+{ord(character):04X} ({name}) {remedy}"
