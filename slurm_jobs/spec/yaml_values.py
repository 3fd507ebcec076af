"""YAML text -> plain values with the place of each, without YAML 1.1's silent conversions. PURE.

Scalars follow the core schema of YAML 1.2: `true`/`false`, `null`, decimal
integers and floats (so `1e-4` is a number). What YAML 1.1 readers would turn
into something else in silence (`no`, `1:30`, `0755`, `1_000`, a date) is an
error that says how to write what was meant. Tags are refused, so a spec
cannot make a reader build an object; a repeated key is refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from slurm_jobs.common.errors import Problem

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""

MAX_CHARACTERS = 200_000
"""A spec has some thousands; the parser takes seconds for what is longer."""

MAX_NODES = 100_000
"""Aliases can make a small file describe an enormous one; a spec has some hundreds of nodes."""

MAX_DIGITS = 30
"""Of a whole number."""

MAX_DEPTH = 50
"""Levels of nesting; a spec has about eight."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_TRAPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?i:yes|no|on|off|y|n)"),
        "is a truth value in YAML 1.1 and text in YAML 1.2; write true, false, or quotes around it",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "is a number to base 60 in YAML 1.1 (1:30 would be 90); write that number, or quote text",
    ),
    (
        re.compile(r"[-+]?0[0-9_]+"),
        "is an octal number in YAML 1.1 (010 would be 8); write it without the zero, or in quotes",
    ),
    (
        re.compile(r"[-+]?0(x[0-9a-fA-F_]+|b[01_]+|o[0-7]+)"),
        "is a number in another base; write it in decimal, or in quotes if text is meant",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9,]*_[0-9_]*(\.[0-9_]*)?"),
        "is a number in YAML 1.1 and text in YAML 1.2; write it without underscores, or in quotes",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"),
        "is a date in YAML 1.1 and text in YAML 1.2; put quotes around it",
    ),
)

_RESOLVER: Any = yaml.SafeLoader("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something stands in a file, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlDocument:
    """A file's values, their places, and what is wrong with its YAML."""

    file: str
    value: Any
    key_places: dict[Path, Place] = field(default_factory=dict)
    """Place of the key of each value (of the item, in a list)."""
    value_places: dict[Path, Place] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)
    """Values that do not come from the file, and where they do come from."""
    problems: tuple[Problem, ...] = ()


def printable(text: str) -> str:
    """`text` on one line and without characters that could steer a terminal or hide."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str) -> str:
    """At most 60 characters of `text`."""
    return text if len(text) <= 60 else text[:57] + "..."


def read_yaml(text: str, file: str) -> YamlDocument:
    """Read one YAML document; everything wrong with it is in `problems`, never raised."""
    reader = _Reader(file)
    value = None
    node = _compose(text, reader)
    if node is not None:
        value = reader.value(node, ())
    return YamlDocument(
        file=file,
        value=value,
        key_places=reader.key_places,
        value_places=reader.value_places,
        problems=tuple(reader.problems),
    )


def _compose(text: str, reader: _Reader) -> yaml.Node | None:
    """The node graph; None if there is none, or if the text is no YAML (a problem is noted)."""
    start = Place(line=1, column=1)
    if len(text) > MAX_CHARACTERS:
        message = f"the file has {len(text)} characters, a spec at most {MAX_CHARACTERS}"
        reader.problem(start, message)
        return None
    try:
        return yaml.SafeLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        what = " ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        if "end of stream" in what and error.context_mark is not None:
            mark = error.context_mark  # where the quotes open says more than where the file ends
        place = _place(mark) if mark is not None else start
        reader.problem(place, f"not valid YAML: {what}{_yaml_remedy(what)}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        place = Place(line=line, column=error.position - (before.rfind("\n") + 1) + 1)
        character = text[error.position : error.position + 1]
        message = f"not valid YAML: the character {character!a} is not allowed"
        reader.problem(place, message)
    except RecursionError:
        reader.problem(start, f"nested more than {MAX_DEPTH} levels deep")
    except (ValueError, OverflowError) as error:  # PyYAML on an escape such as "\UFFFFFFFF"
        reader.problem(start, f"not valid YAML: {error}")
    return None


def _yaml_remedy(what: str) -> str:
    if "'\\t'" in what:
        return "; indent with spaces, not tabs"
    if "expected a single document" in what:
        return "; a spec is one document, so leave out the second `---`"
    if "'%'" in what or "'@'" in what or "'`'" in what:
        return "; put quotes around the text"
    return ""


def _place(mark: yaml.Mark) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


class _Reader:
    """Walks a node graph once; collects places and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.key_places: dict[Path, Place] = {}
        self.value_places: dict[Path, Place] = {}
        self.size = 0
        self.open_nodes: set[int] = set()

    def problem(self, place: Place, message: str) -> None:
        message = printable(message)
        self.problems.append(
            Problem(file=self.file, line=place.line, column=place.column, message=message)
        )

    def value(self, node: yaml.Node, path: Path) -> Any:
        place = _place(node.start_mark)
        self.value_places.setdefault(path, place)
        self.key_places.setdefault(path, place)
        if self._is_too_large(node, place):
            return None
        if id(node) in self.open_nodes:
            self.problem(place, "this alias contains itself")
            return None
        if len(path) > MAX_DEPTH:
            self.problem(place, f"nested more than {MAX_DEPTH} levels deep")
            return None
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                self._refuse_tag(node, "tag:yaml.org,2002:seq")
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return self._scalar(node, place)
        finally:
            self.open_nodes.discard(id(node))

    def _is_too_large(self, node: yaml.Node, place: Place) -> bool:
        """Whether aliases have made the values outgrow any honest spec; said once."""
        was_small = self.size < MAX_NODES
        self.size += 1 + (len(node.value) // 20 if isinstance(node, yaml.ScalarNode) else 0)
        if was_small and self.size >= MAX_NODES:
            self.problem(place, f"aliases make this file larger than {MAX_NODES} values")
        return self.size >= MAX_NODES

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._refuse_tag(node, "tag:yaml.org,2002:map")
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            key = self._key(key_node, place)
            if key is None:
                continue
            key_path = (*path, key)
            if key in values:
                first = self.key_places[key_path].line
                self.problem(
                    place, f"key `{shortened(key)}` is repeated; it stands on line {first} already"
                )
                continue
            self.key_places[key_path] = place
            values[key] = self.value(value_node, key_path)
        return values

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.problem(place, "a key must be plain text")
            return None
        if node.value == "<<" and node.style is None:
            self.problem(place, "merge keys (<<) are not supported; write the keys out")
            return None
        self._refuse_tag(node, _implicit_tag(node))
        return self._text(node.value, place)

    def _refuse_tag(self, node: yaml.Node, allowed: str) -> None:
        if node.tag != allowed:
            self.problem(
                _place(node.start_mark),
                f"the tag {node.tag} is not allowed; a spec holds plain values only",
            )

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        self._refuse_tag(node, _implicit_tag(node))
        if node.style is not None:  # quoted or block text is text
            return self._text(node.value, place)
        return self._plain(node.value, place)

    def _text(self, text: str, place: Place) -> str:
        if "\0" in text:
            self.problem(place, "the text holds a NUL character (\\0)")
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.problem(place, "the text holds half of a surrogate pair (\\ud800 to \\udfff)")
            return printable(text)
        return text

    def _plain(self, text: str, place: Place) -> Any:
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        for pattern, remedy in _TRAPS:
            if pattern.fullmatch(text):
                self.problem(place, f"`{shortened(text)}` {remedy}")
                return text
        number = _number(text)
        if number is None:
            return self._text(text, place)
        if isinstance(number, float) and not math.isfinite(number):
            message = f"`{shortened(text)}` is not a finite number; none is allowed in a spec"
            self.problem(place, message)
        return number


def _implicit_tag(node: yaml.ScalarNode) -> str:
    """The tag that a scalar has if the file gives it none."""
    if node.style is not None:
        return "tag:yaml.org,2002:str"
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    return tag


def _number(text: str) -> int | float | None:
    """The number that plain text means; one too large for a float is infinite."""
    if _INT.fullmatch(text):
        return int(text) if len(text) <= MAX_DIGITS else math.inf
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.inf if _INFINITE.fullmatch(text) else None
