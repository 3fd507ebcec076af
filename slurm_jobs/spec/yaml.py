"""YAML with the position of each value, and its errors in plain words. PURE."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import yaml

from slurm_jobs.shared.errors import Problem
from slurm_jobs.shared.redact import BOOLS, NULLS, parse_number, printable, shortened, trap

# What to write instead of a value of the wrong kind.


_BYTES: dict[str, int] = {
    **dict.fromkeys(("k", "kb", "kib"), 1024),
    **dict.fromkeys(("m", "mb", "mib"), 1024**2),
    **dict.fromkeys(("g", "gb", "gib"), 1024**3),
    **dict.fromkeys(("t", "tb", "tib"), 1024**4),
}
_SECONDS: dict[str, int] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 60**2),
    **dict.fromkeys(("d", "day", "days"), 24 * 60**2),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 24 * 60**2),
}
"""Sizes, as those above, by a unit as people write it."""
_UNITS = {
    "mb": ("megabytes", _BYTES),
    "gb": ("gigabytes", _BYTES),
    "s": ("seconds", _SECONDS),
    "min": ("minutes", _SECONDS),
}
"""By the unit that ends a key's name: its name, and the units that can follow a number."""
_WITH_UNIT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?([A-Za-z]+)")
_PERCENT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?%")
_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]+),([0-9]+)")


def value_remedy(key: str, kind: str, value: Any) -> str:
    """Return `; ` and the remedy for a `value` of `key` that is not of pydantic's `kind`."""
    if kind == "string_type" and isinstance(value, (int, float)):
        return "; put quotes around it"
    if kind not in {"int_type", "float_type"} or not isinstance(value, str):
        return ""
    if _fits(parse_number(value.strip()), kind):
        return "; remove the quotes"
    if clock := clock_remedy(key, value.strip()):
        return f"; {clock}"
    if (comma := _DECIMAL_COMMA.fullmatch(value.strip())) and kind == "float_type":
        return f"; {decimal_comma(comma[1], comma[2])}"
    if (percent := _PERCENT.fullmatch(value.strip())) and kind == "float_type":
        return f"; write {_shown(float(percent[1]) / 100)}"
    match = _WITH_UNIT.fullmatch(value.strip())
    converted = _in_unit(key.rpartition("_")[2], match[1], match[2].lower()) if match else None
    if converted is None or not _fits(converted, kind):
        return ""
    return f"; {_counts(key)}: write {_shown(converted)}"


def decimal_comma(whole: str, part: str) -> str:
    """Return what to write instead of a number with a comma in it."""
    thousands = f", or {whole}{part} for thousands" if len(part) == 3 else ""
    return f"a decimal number has a point: write {whole}.{part}{thousands}"


def split_number(key: str, value: Any, holder: Any) -> str:
    """Return `; ` and the remedy for a `key` of digits without a value that follows a number.

    In braces `mem_gb: 2,5` is the number 2 and a key `5`.
    """
    if value is not None or not key.isdecimal() or not isinstance(holder, Mapping):
        return ""
    keys = list(holder)
    before = keys[keys.index(key) - 1] if key in keys[1:] else None
    number_before = holder.get(before)
    if not isinstance(number_before, int) or isinstance(number_before, bool):
        return ""
    return f"; it belongs to `{before}: {number_before}`: {decimal_comma(str(number_before), key)}"


def clock_remedy(key: str, text: str) -> str:
    """Return what to write instead of a time (`12:00:00`), if `key` names its unit."""
    unit, parts = key.rpartition("_")[2], text.split(":")
    if unit not in {"s", "min"} or not all(re.fullmatch("[0-9]{1,6}", part) for part in parts):
        return ""

    def shown(*by_place: int) -> str:
        seconds = sum(int(part) * each for part, each in zip(parts, by_place, strict=True))
        converted = _in_unit(unit, str(seconds), "s")
        assert converted is not None
        return _shown(converted)

    if len(parts) == 3:
        return f"{_counts(key)}: write {shown(3600, 60, 1)}"
    if len(parts) == 2:
        either = f"{shown(3600, 60)} if it is hours:minutes, {shown(60, 1)} if minutes:seconds"
        return f"{_counts(key)}: write {either}"
    return ""


def _counts(key: str) -> str:
    return f"`{key}` counts {_UNITS[key.rpartition('_')[2]][0]}"


def _shown(converted: float) -> str:
    return str(converted) if isinstance(converted, int) else f"{converted:.6g}"


def _in_unit(unit: str, amount: str, given_unit: str) -> int | float | None:
    """Return `amount` of one unit in another, exact if it is whole; None if a unit is unknown."""
    _, table = _UNITS.get(unit, ("", {}))
    if given_unit not in table:
        return None
    converted = Fraction(amount) * table[given_unit] / table[unit]
    return converted.numerator if converted.denominator == 1 else float(converted)


def _fits(value: float | None, kind: str) -> bool:
    is_finite = value is not None and math.isfinite(value)
    return is_finite and (kind == "float_type" or isinstance(value, int))


# Blanks of a spec that are not spaces: tabs where YAML allows them, and characters like a space.
#
# PyYAML refuses every tab outside of quotes. YAML 1.2 forbids them only in the indentation of
# block structure: after a value, before a comment, and anywhere in JSON they are blanks.


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


# An error of the YAML parser -> its place, and what to write instead.


_KEY_BEFORE = re.compile(r"\s*\S.*:\s")
"""A key and its value, before a second colon on the line."""

_WRITE_QUOTED = "put quotes around the text"
_TAB_AFTER_DASH = re.compile(r"[ ]*(?:-[ ]+)*-[ ]*\t")
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("scanning a tag", "leave out the tag"),
    ("'\\t'", "indent with spaces, not tabs"),
    ("expected a single document", "a spec is one document, so leave out the second `---`"),
    ("'%'", _WRITE_QUOTED),
    ("'@'", _WRITE_QUOTED),
    ("'`'", _WRITE_QUOTED),
    ("scanning an alias", _WRITE_QUOTED),
    ("scanning an anchor", _WRITE_QUOTED),
    ("undefined alias", "put quotes around text that begins with *"),
    ("while scanning a quoted scalar", "the quote that opens here is never closed"),
    ("while scanning a simple key", "write `key: value`, with a blank after the colon"),
    ("while scanning a block scalar", "the text after | or > begins on the next line"),
    ("found '-'", "a list goes below its key, not next to other keys"),
    ("sequence entries are not", "begin the list on the next line, or write [a, b]"),
    ("expected '<document start>'", "begin this line in the same column as the first key"),
    ("expected the node content", _WRITE_QUOTED),
    ("unknown escape character", "write \\\\ for a backslash, or put '...' around the text"),
    ("parsing a flow mapping", "put a comma between values, and close { with }"),
    ("parsing a flow sequence", "put a comma between values, and close [ with ]"),
)
"""Part of the parser's message, and the remedy. The first match counts."""

_AT_CONTEXT = (
    *("end of stream", "document separator"),
    *("scanning a simple key", "scanning an alias", "scanning an anchor"),
)
"""Messages for which the place where the parser began (an open quote, a line without a colon) says
more than the place where it stopped."""

_FOUND_EXTRA = re.compile(r"(?:flow node .*|<block end>.*|<document start>.*)found '([],}])'")
_HAS_KEY = re.compile(r":(\s|$)")


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark | None, str]:
    """Return where the mistake is (None if unknown), and what it is with the remedy."""
    odd = odd_blank_before(error, text)
    if odd is not None:
        return odd
    what = " ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    if mark is not None:
        earlier = _open_above(error, what, text, mark) or _cause_above(what, lines, mark)
        if earlier is not None:
            return earlier
    if error.context_mark is not None and any(words in what for words in _AT_CONTEXT):
        mark = error.context_mark
    before = _before(lines, mark) if mark is not None else ""
    remedy = _remedy(what, before, lines[: mark.line] if mark is not None else [])
    return mark, f"{what}; {remedy}" if remedy else what


def _open_above(
    error: yaml.MarkedYAMLError, what: str, text: str, mark: yaml.Mark
) -> tuple[yaml.Mark, str] | None:
    """Return the quote or bracket on an earlier line that should have been closed."""
    last: yaml.ScalarToken | None = None
    brackets = []
    try:
        for token in yaml.scan(text, SpecLoader):
            if token.start_mark.index >= mark.index:
                break
            if isinstance(token, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)):
                brackets.append(token.start_mark)
            elif isinstance(token, (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)):
                brackets = brackets[:-1]
            elif isinstance(token, yaml.ScalarToken):
                last = token
    except yaml.YAMLError:
        pass  # it is being explained
    after = error.context_mark if "scanning a quoted scalar" in what else None
    if last is not None and last.style in {"'", '"'}:
        end = last.end_mark.line
        if last.start_mark.line < end == (after or mark).line:
            return last.start_mark, (
                f"the quote that opens here is closed only on line {end + 1}, where more text "
                "follows; close it where the text ends"
            )
    opened = brackets[-1] if brackets and "<stream end>" in what else None
    if "parsing a flow sequence" in what or "parsing a flow mapping" in what:
        opened = error.context_mark
    if opened is None or opened.line >= mark.line:
        return None
    is_mapping = "flow mapping" in what or text[opened.index : opened.index + 1] == "{"
    pair = "{ with }" if is_mapping else "[ with ]"
    return opened, (
        f"what opens here is still open on line {mark.line + 1}; close {pair}, and put a "
        "comma between values"
    )


def _cause_above(what: str, lines: list[str], mark: yaml.Mark) -> tuple[yaml.Mark, str] | None:
    """Return the tab or the line without a key because of which a colon is refused at `mark`."""
    before = _before(lines, mark)
    if "mapping values are not allowed" not in what:
        return None
    if tab := _TAB_AFTER_DASH.match(before):
        at = yaml.Mark(mark.name, 0, mark.line, tab.end() - 1, None, 0)
        return at, "there is a tab between the dash and a key; type a space"
    if _KEY_BEFORE.match(before) or before.lstrip().startswith("- "):
        return None
    first = None  # of the last lines without a key, which the parser took for one text
    for number in range(mark.line - 1, -1, -1):
        line = lines[number].strip()
        if line.startswith("#") or _HAS_KEY.search(line):
            break
        first = number if line else first
        if line.startswith("- "):
            break
    if first is None:
        return None
    column = len(lines[first]) - len(lines[first].lstrip())
    at = yaml.Mark(mark.name, 0, first, column, None, 0)
    return at, "this line is not `key: value` (a blank follows the colon)"


def _before(lines: list[str], mark: yaml.Mark) -> str:
    """Return the mark's line up to the mark."""
    return lines[mark.line][: mark.column] if mark.line < len(lines) else ""


def _is_below_item(before: str, above: list[str]) -> bool:
    """Check whether an item of a list is above, before any line that is further to the left."""
    indent = len(before) - len(before.lstrip())
    for line in reversed(above):
        stripped = line.lstrip()
        if stripped.startswith("- "):
            return True
        if stripped and len(line) - len(stripped) < indent:
            break
    return False


def _remedy(what: str, before: str, above: list[str]) -> str:
    is_item = "<block sequence start>" in what or "found '-'" in what or before.startswith("-")
    is_item = is_item or before.lstrip().startswith("- ")
    if "mapping values are not allowed" in what and _KEY_BEFORE.match(before):
        return "put quotes around a value that holds a colon, or write | and the text below it"
    if is_item and _is_below_item(before, above):
        return "begin this line in the same column as the item above it"
    if "mapping values are not allowed" in what:
        return "begin this line in the same column as the key above it"
    if "'<scalar>'" in what and before.rstrip().endswith(("'", '"')):
        return (
            "text follows a closing quote: write '' for a quote inside '...', or put "
            '"..." around it'
        )
    if "got '{'" in what and before.endswith("$"):
        return 'put quotes around a value with `${...}` that is inside { } or [ ]: "${...}"'
    extra = _FOUND_EXTRA.search(what)
    if extra is not None:
        return f"there is one {extra[1]} too many: remove it, or put quotes around the text"
    for words, remedy in _REMEDIES:
        if words in what:
            return remedy
    if "<block end>" in what and not before.strip():
        return "begin this line in the same column as the other keys of its mapping"
    return _WRITE_QUOTED if "<block end>" in what else ""


# YAML text -> plain values, each with its place, without YAML 1.1's silent conversions.
#
# Scalars follow the core schema of YAML 1.2: `true`/`false`, `null`, decimal integers and floats
# (so `1e-4` is a number). What YAML 1.1 readers silently convert (`no`, `1:30`, `0755`, `1_000`, a
# date) is an error that says what to write. Tags are refused, so that a spec cannot make a reader
# build an object. So are repeated keys. ruamel.yaml (0.19) cannot replace this reader: it takes
# `0755` as 755, `1_000` as 1000 and a date as a date, stops at the first repeated key, refuses the
# same tabs as PyYAML, and takes a third longer to load and read a spec (0.060 s instead of 0.046
# s).


KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of a file down to a value."""

MAX_CHARACTERS = 200_000
"""A spec has some thousands. The parser takes seconds for a longer text."""

MAX_NODES = 100_000
"""Limit for aliases, with which a small file can describe an enormous one; a spec has some hundreds
of nodes."""

MAX_DEPTH = 50
"""Limit for levels of nesting; a spec has about eight."""

_MERGE = "<<"

_RESOLVER: Any = yaml.SafeLoader("")


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
    tagged: frozenset[KeyPath] = frozenset()
    """Values whose tag was refused: their intended kind is unknown."""
    problems: tuple[Problem, ...] = ()


def read_yaml(text: str, file: str, *, key: str = "") -> YamlDocument:
    """Read one YAML document. Everything wrong with it is in `problems`, nothing is raised.

    Args:
        text: YAML.
        file: name for the problems.
        key: of the value, where the text is only the value of a key.
    """
    reader = _Reader(file, key)
    node = _compose(text, reader)
    value = None
    if node is not None:
        for line, column, message in odd_blanks(text):
            reader.problem(Place(line=line, column=column), message)
        value = reader.value(node, ())
    return YamlDocument(
        file=file,
        value=value,
        key_places=reader.key_places,
        value_places=reader.value_places,
        tagged=frozenset(reader.tagged),
        problems=tuple(reader.problems),
    )


def _compose(text: str, reader: _Reader) -> yaml.Node | None:
    """Return the node graph; None for an empty text, or if it is not YAML (a problem is added)."""
    place = Place(line=1, column=1)
    if len(text) > MAX_CHARACTERS:
        message = f"the file has {len(text)} characters, a spec at most {MAX_CHARACTERS}"
        reader.problem(place, message)
        return None
    try:
        return SpecLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark, message = explain(error, text)
        place = _place(mark) if mark is not None else place
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - (before.rfind("\n") + 1) + 1
        place = Place(line=before.count("\n") + 1, column=column)
        message = f"the character {text[error.position : error.position + 1]!a} is not allowed"
    except RecursionError:
        reader.problem(place, f"nested more than {MAX_DEPTH} levels deep")
        return None
    except (ValueError, OverflowError) as error:  # PyYAML on an escape such as "\UFFFFFFFF"
        message = str(error)
    reader.problem(place, f"not valid YAML: {message}")
    return None


def _place(mark: yaml.Mark) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


class _Reader:
    """Single walk of a node graph that collects places and problems."""

    def __init__(self, file: str, key: str) -> None:
        self.file = file
        self.key = key
        self.problems: list[Problem] = []
        self.key_places: dict[KeyPath, Place] = {}
        self.value_places: dict[KeyPath, Place] = {}
        self.tagged: set[KeyPath] = set()
        self.size = 0
        self.open_nodes: set[int] = set()

    def problem(self, place: Place, message: str) -> None:
        problem = Problem(
            file=self.file, line=place.line, column=place.column, message=printable(message)
        )
        self.problems.append(problem)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        place = _place(node.start_mark)
        self.value_places.setdefault(path, place)
        self.key_places.setdefault(path, place)
        was_small = self.size < MAX_NODES
        self.size += 1 + (len(node.value) // 20 if isinstance(node, yaml.ScalarNode) else 0)
        if self.size >= MAX_NODES:
            if was_small:
                self.problem(place, f"aliases make this file larger than {MAX_NODES} values")
            return None
        if id(node) in self.open_nodes:
            self.problem(place, "this alias contains itself")
            return None
        if len(path) > MAX_DEPTH:
            self.problem(place, f"nested more than {MAX_DEPTH} levels deep")
            return None
        if isinstance(node, yaml.ScalarNode):
            self._refuse_tag(node, _implicit_tag(node), path)
            if node.style is not None:  # quoted or block text is text
                return self._text(node.value, place)
            return self._plain(node.value, place, str(path[-1]) if path else self.key)
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            self._refuse_tag(node, "tag:yaml.org,2002:seq", path)
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self.open_nodes.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._refuse_tag(node, "tag:yaml.org,2002:map", path)
        values: dict[str, Any] = {}
        merged: list[tuple[yaml.Node, Place]] = []
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(place, "a key must be plain text")
                continue
            if key_node.value == _MERGE and key_node.style is None:
                self.problem(place, "merge keys (<<) are not supported; write the keys out")
                merged.append((value_node, place))
                continue
            self._refuse_tag(key_node, _implicit_tag(key_node), (*path, key_node.value))
            key = self._text(key_node.value, place)
            key_path = (*path, key)
            if key in values:
                first = self.key_places[key_path].line
                self.problem(
                    place, f"key `{shortened(key)}` is repeated; it is already on line {first}"
                )
                continue
            self.key_places[key_path] = place
            values[key] = self.value(value_node, key_path)
        for value_node, place in merged:
            self._merge(value_node, place, path, values)
        return values

    def _merge(self, node: yaml.Node, place: Place, path: KeyPath, values: dict[str, Any]) -> None:
        """Add the keys of a refused merge key, so that none of them is reported as missing."""
        if not isinstance(node, yaml.MappingNode) or id(node) in self.open_nodes:
            return
        for key_node, value_node in node.value:
            key = key_node.value
            if isinstance(key, str) and key != _MERGE and key not in values:
                key_path = (*path, key)
                self.key_places[key_path] = place
                values[key] = self.value(value_node, key_path)

    def _refuse_tag(self, node: yaml.Node, allowed: str, path: KeyPath) -> None:
        if node.tag != allowed:
            self.tagged.add(path)
            self.problem(
                _place(node.start_mark),
                f"the tag {node.tag} is not allowed; a spec holds plain values only",
            )

    def _text(self, text: str, place: Place) -> str:
        if "\0" in text:
            self.problem(place, "the text holds a NUL character (\\0)")
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.problem(place, "the text holds half of a surrogate pair (\\ud800 to \\udfff)")
            return printable(text)
        return text

    def _plain(self, text: str, place: Place, key: str) -> Any:
        if text in NULLS:
            return None
        if text in BOOLS:
            return BOOLS[text]
        reason = trap(text)
        if reason is not None:
            clock = clock_remedy(key, text)
            reason = f"is not a number; {clock}" if clock else reason
            self.problem(place, f"`{shortened(text)}` {reason}")
            return text
        value = parse_number(text)
        if value is None:
            return self._text(text, place)
        if isinstance(value, float) and not math.isfinite(value):
            message = f"`{shortened(text)}` is not a finite number; none is allowed in a spec"
            self.problem(place, message)
        return value


def _implicit_tag(node: yaml.ScalarNode) -> str:
    """Return the tag of a scalar to which the file gives none."""
    if node.style is not None:
        return "tag:yaml.org,2002:str"
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    return tag


# Places of values and problems.


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
    return Problem(file=file, line=line, column=column, message=text)


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


# Plain values as YAML on one line, for messages.


def flow_text(value: Any) -> str:
    """Return YAML that is read as `value`; text has quotes only if it needs them."""
    if isinstance(value, dict):
        pairs = (f"{flow_text(key)}: {flow_text(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow_text, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    read = read_yaml(f"[{value}]", "")
    is_plain = not read.problems and read.value == [value]
    return value if is_plain else json.dumps(value, ensure_ascii=False)
