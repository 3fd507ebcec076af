"""A command line up to the cursor -> its words, as bash would read them, and back. PURE.

Nothing is expanded: a `$HOME` stays what it is. An open quote is no error, since the user types.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n]+) | (?P<end>[;|&()]) | (?P<single>'([^']*)('|\Z))
    | (?P<double>"((?:\\.|[^"\\])*)\\?("|\Z)) | \\(?P<escaped>.?) | (?P<plain>[^\s;|&()'"\\]+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE_IN_DOUBLE = re.compile(r'\\(["\\$`])')
_BREAK = re.compile(r".*[=:@]")
"""Where bash (readline) begins a word anew, of what stands within the words that we complete."""

_UNSAFE = re.compile(r"[^\w./:=,%+@-]")
_SINGLE, _DOUBLE = "'", '"'


class TypedWord(NamedTuple):
    """A word without its quotes."""

    text: str
    begin: int = 0
    """In `text`: where bash begins what it replaces by a candidate."""
    quote: str = ""
    """The one that is open at its end."""


def words_of(line: str) -> list[TypedWord]:
    """The words of the last command on the line; the last one is what is being typed."""
    words: list[TypedWord] = []
    word: TypedWord | None = None
    for token in _TOKEN.finditer(line):
        if token["blank"] or token["end"]:
            words += [word] if word is not None else []
            word = None
            words = [] if token["end"] else words
        else:
            word = _with(word or TypedWord(""), token)
    return [*words, word or TypedWord("")]


def _with(word: TypedWord, token: re.Match[str]) -> TypedWord:
    """A word and the next piece of it."""
    text, begin, _ = word
    if token["plain"]:
        found = _BREAK.match(token["plain"])
        return TypedWord(text + token["plain"], len(text) + found.end() if found else begin)
    if token["escaped"] is not None:
        return TypedWord(text + token["escaped"], begin)
    piece = token[0]
    is_closed = len(piece) > 1 and token["single" if token["single"] else "double"][-1] == piece[0]
    inner = piece[1:-1] if is_closed else piece[1:]
    if piece[0] == _DOUBLE:
        inner = _ESCAPE_IN_DOUBLE.sub(r"\1", inner)
    return TypedWord(text + inner, begin if is_closed else len(text), "" if is_closed else piece[0])


def quoted(text: str, quote: str) -> str:
    """Text as it must stand in a line of bash, outside of quotes or within an open one."""
    if quote == _SINGLE:
        return text.replace("'", "'\\''")
    if quote == _DOUBLE:  # `!` recalls earlier lines there, and a backslash before it would stay
        return re.sub(r'(["\\$`])', r"\\\1", text).replace("!", "\"'!'\"")
    return _UNSAFE.sub(r"\\\g<0>", text)
