"""YAML text -> plain values with the place of each, without YAML 1.1's silent conversions. PURE.

Scalars follow the core schema of YAML 1.2: `true`/`false`, `null`, decimal
integers and floats (so `1e-4` is a number). What YAML 1.1 readers would turn
into something else in silence (`no`, `1:30`, `0755`, `1_000`, a date) is an
error that says how to write what was meant. Tags are refused, so a spec
cannot make a reader build an object; a repeated key is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from slurm_jobs.common.errors import Problem

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""

MAX_NODES = 100_000
"""Aliases can make a small file describe an enormous one; a spec has some hundreds of nodes."""

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
        "is a number to base 60 in YAML 1.1 (1:30 would be 90); put quotes around it",
    ),
    (
        re.compile(r"[-+]?0[0-7_]+"),
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

_RESOLVER = yaml.SafeLoader("")


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


def read_yaml(text: str, file: str) -> YamlDocument:
    """Read one YAML document; everything wrong with it is in `problems`, never raised."""
    reader = _Reader(file)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(mark) if mark is not None else Place(line=1, column=1)
        what = " ".join(part for part in (error.context, error.problem) if part)
        reader.problem(place, f"not valid YAML: {what}")
        return YamlDocument(file=file, value=None, problems=tuple(reader.problems))
    except (yaml.reader.ReaderError, RecursionError) as error:
        reader.problem(Place(line=1, column=1), f"not readable as YAML: {error}".split("\n")[0])
        return YamlDocument(file=file, value=None, problems=tuple(reader.problems))
    value = None if node is None else reader.value(node, ())
    return YamlDocument(
        file=file,
        value=value,
        key_places=reader.key_places,
        value_places=reader.value_places,
        problems=tuple(reader.problems),
    )


def _place(mark: yaml.Mark) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


class _Reader:
    """Walks a node graph once; collects places and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.key_places: dict[Path, Place] = {}
        self.value_places: dict[Path, Place] = {}
        self.num_nodes = 0
        self.open_nodes: set[int] = set()

    def problem(self, place: Place, message: str) -> None:
        self.problems.append(
            Problem(file=self.file, line=place.line, column=place.column, message=message)
        )

    def value(self, node: yaml.Node, path: Path) -> Any:
        place = _place(node.start_mark)
        self.value_places.setdefault(path, place)
        self.key_places.setdefault(path, place)
        self.num_nodes += 1
        if self.num_nodes == MAX_NODES:
            self.problem(place, f"aliases make this file larger than {MAX_NODES} values")
        if self.num_nodes >= MAX_NODES:
            return None
        if id(node) in self.open_nodes:
            self.problem(place, "this alias contains itself")
            return None
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, place)
        finally:
            self.open_nodes.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._refuse_tag(node, "tag:yaml.org,2002:map")
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(place, "a key must be plain text")
                continue
            key = key_node.value
            if key == "<<" and key_node.style is None:
                self.problem(place, "merge keys (<<) are not supported; write the keys out")
                continue
            key_path = (*path, key)
            if key in values:
                first = self.key_places[key_path].line
                self.problem(place, f"key `{key}` is repeated; it stands on line {first} already")
                continue
            self.key_places[key_path] = place
            values[key] = self.value(value_node, key_path)
        return values

    def _refuse_tag(self, node: yaml.Node, allowed: str) -> None:
        if node.tag != allowed:
            self.problem(
                _place(node.start_mark),
                f"the tag {node.tag} is not allowed; a spec holds plain values only",
            )

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        text: str = node.value
        if node.style is not None:  # quoted or block text is text
            self._refuse_tag(node, "tag:yaml.org,2002:str")
            return text
        implicit = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        self._refuse_tag(node, implicit)
        return self._plain(text, place)

    def _plain(self, text: str, place: Place) -> Any:
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        if _INT.fullmatch(text):
            return int(text)
        for pattern, remedy in _TRAPS:
            if pattern.fullmatch(text):
                self.problem(place, f"`{text}` {remedy}")
                return text
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITE.fullmatch(text):
            self.problem(place, f"`{text}` is not a finite number; none is allowed in a spec")
        return text
