"""Blanks of a spec that are not spaces: tabs where YAML allows them, and characters like a space.

PyYAML refuses every tab outside of quotes. YAML 1.2 forbids them only in the indentation of
block structure: after a value, before a comment, and anywhere in JSON they are blanks. PURE.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import yaml

ODD = "\u00a0\u1680\u180e\u2000-\u200f\u202a-\u202f\u205f-\u2064\u3000\ufeff"
"""Spaces other than U+0020, characters without width, and marks of direction."""
_ODD_ENDS = re.compile(f"^[{ODD}]+|[{ODD}]+$")
_WIDE_COLON = "\uff1a"
_ODD_ANYWHERE = re.compile(f"[{ODD}]")
_ODD_SEPARATOR = re.compile(
    f"^[ ]*(?:- +)*(?P<indent>[{ODD}])|^[ ]*(?:- +)*[\\w.-]+:(?P<colon>[{ODD}])"
    f"|^[ ]*-(?P<dash>[{ODD}])|^[ ]*(?:- +)*[\\w.-]+(?P<wide>{_WIDE_COLON})"
)
"""Odd blanks at the beginning of a line: in its indentation, after its key's colon, after its dash,
and a wide colon after its key."""
_BLOCK_HEAD = re.compile(r"[|>][-+0-9]*[ \t]+")
_UNSPLIT = re.compile(f"^[\\w.-]+:(?=[{ODD}])|[{ODD}](?=#)")
"""Plain text with a colon or a comment that YAML does not recognise."""


class SpecLoader(yaml.SafeLoader):
    """SafeLoader that accepts tabs as blanks where YAML does."""

    def scan_to_next_token(self) -> None:
        """Skip blanks, tabs among them, comments and line breaks."""
        super().scan_to_next_token()
        while self.peek() == "\t" and self._is_blank_tab():
            while self.peek() in " \t":
                self.forward()
            if not self.flow_level:
                self.allow_simple_key = False  # no key after a tab: its column would be a guess
            super().scan_to_next_token()

    def _is_blank_tab(self) -> bool:
        if self.flow_level:
            return True
        before = self.buffer[: self.pointer].rpartition("\n")[2]
        after = self.buffer[self.pointer :].partition("\n")[0].lstrip(" \t\r")
        return bool(before.strip()) or not after.strip("\0") or after.startswith("#")

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> Any:
        """Scan blanks in a plain text; tabs between its words belong to it."""
        length = 0
        while self.peek(length) in " \t":
            length += 1
        blanks = self.prefix(length)
        if "\t" not in blanks:
            return super().scan_plain_spaces(indent, start_mark)
        self.forward(length)
        if self.peek() in "\r\n\x85\u2028\u2029":
            return super().scan_plain_spaces(indent, start_mark)
        return [] if self.peek() in "\0#" else [blanks]

    def scan_block_scalar(self, style: str) -> Any:
        """Scan text below `|` or `>`; a tab after that is a blank."""
        end = self.pointer + len(self.buffer[self.pointer :].partition("\n")[0])
        head = _BLOCK_HEAD.match(self.buffer, self.pointer, end)
        if head is not None:
            blanks = head[0].replace("\t", " ")
            self.buffer = self.buffer[: self.pointer] + blanks + self.buffer[head.end() :]
        return super().scan_block_scalar(style)


def odd_blanks(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and message of odd blanks that have become part of a key or value.

    In quotes, in block text and between words they are intended. At the ends of a plain text, in a
    key without quotes, or where YAML wants a space after a colon, they never are.
    """
    if not _ODD_ANYWHERE.search(text):
        return
    lines = _lines(text)
    is_key = is_value = False
    for token in yaml.scan(text, SpecLoader):
        if isinstance(token, yaml.ScalarToken) and token.plain:
            odd = _in_plain(token, lines, is_key=is_key, is_value=is_value)
            if odd is not None:
                yield odd
        is_key = isinstance(token, yaml.KeyToken)
        is_value = isinstance(token, yaml.ValueToken)


def _lines(text: str) -> list[str]:
    """Return the lines; PyYAML counts no column for a byte order mark before the first."""
    return text.removeprefix("\ufeff").splitlines()


def _in_plain(
    token: yaml.ScalarToken, lines: list[str], *, is_key: bool, is_value: bool
) -> tuple[int, int, str] | None:
    number, column = token.start_mark.line, token.start_mark.column
    line = lines[number] if number < len(lines) else ""
    match = _ODD_SEPARATOR.match(line) if not line[:column].strip(" -") else None
    if match is not None and not match["wide"]:  # which an item of a list may have
        return (number + 1, *_named(line, match.end() - 1))
    if number != token.end_mark.line:
        return None
    text = line[column : token.end_mark.column]
    unsplit = _UNSPLIT.search(text)
    if unsplit is not None and not (is_value and unsplit[0].endswith(":")):
        match = _ODD_ANYWHERE.search(text, unsplit.start())
    else:
        match = (_ODD_ANYWHERE if is_key else _ODD_ENDS).search(text)
    return None if match is None else (number + 1, *_named(line, column + match.start()))


def odd_blank_before(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark, str] | None:
    """Return the odd blank at which the parser stopped, on its line or on the one before."""
    marks = [mark for mark in (error.context_mark, error.problem_mark) if mark is not None]
    if not marks or not (_WIDE_COLON in text or _ODD_ANYWHERE.search(text)):
        return None
    lines = _lines(text)
    last = max(mark.line for mark in marks)
    first = min(mark.line for mark in marks)
    for number in range(min(last, len(lines) - 1), max(first - 2, -1), -1):
        match = _ODD_SEPARATOR.match(lines[number])
        if match is not None:
            column, message = _named(lines[number], match.end() - 1)
            return yaml.Mark(marks[0].name, 0, number, column - 1, None, 0), message
    return None


def _named(line: str, position: int) -> tuple[int, str]:
    character = line[position]
    name = unicodedata.name(character, "a character without a name").lower()
    if character == _WIDE_COLON:
        return position + 1, f"the character U+FF1A ({name}) is where YAML needs `: `; type it"
    is_space = unicodedata.category(character) == "Zs"
    remedy = "is where YAML needs a space; type one" if is_space else "is invisible; remove it"
    return position + 1, f"the character U+{ord(character):04X} ({name}) {remedy}"
