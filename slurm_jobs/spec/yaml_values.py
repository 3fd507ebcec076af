"""YAML text -> plain values with the place of each, without YAML 1.1's silent conversions. PURE.

Scalars follow the core schema of YAML 1.2: `true`/`false`, `null`, decimal
integers and floats (so `1e-4` is a number). What YAML 1.1 readers would turn
into something else in silence (`no`, `1:30`, `0755`, `1_000`, a date) is an
error that says how to write what was meant. Tags are refused, so a spec
cannot make a reader build an object; a repeated key is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import yaml

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.plain_text import BOOLS, NULLS, number, printable, shortened, trap
from slurm_jobs.spec.remedies.value_remedies import clock_remedy
from slurm_jobs.spec.yaml_blanks import SpecLoader, odd_blanks
from slurm_jobs.spec.yaml_errors import explain

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""

MAX_CHARACTERS = 200_000
"""A spec has some thousands; the parser takes seconds for what is longer."""

MAX_NODES = 100_000
"""Aliases can make a small file describe an enormous one; a spec has some hundreds of nodes."""

MAX_DEPTH = 50
"""Levels of nesting; a spec has about eight."""

_MERGE = "<<"

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
    tagged: frozenset[Path] = frozenset()
    """Values whose tag was refused: what kind of value was meant is not known."""
    problems: tuple[Problem, ...] = ()


def read_yaml(text: str, file: str, *, key: str = "") -> YamlDocument:
    """Read one YAML document; everything wrong with it is in `problems`, never raised.

    `key`: of the value that it is, where it is one.
    """
    reader = _Reader(file, key)
    value = None
    node = _compose(text, reader)
    for line, column, message in odd_blanks(text) if node is not None else ():
        reader.problem(Place(line=line, column=column), message)
    if node is not None:
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
    """The node graph; None if there is none, or if the text is no YAML (a problem is noted)."""
    start = Place(line=1, column=1)
    if len(text) > MAX_CHARACTERS:
        message = f"the file has {len(text)} characters, a spec at most {MAX_CHARACTERS}"
        reader.problem(start, message)
        return None
    try:
        return SpecLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark, message = explain(error, text)
        place = _place(mark) if mark is not None else start
        reader.problem(place, f"not valid YAML: {message}")
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


def _place(mark: yaml.Mark) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


class _Reader:
    """Walks a node graph once; collects places and problems."""

    def __init__(self, file: str, key: str) -> None:
        self.file = file
        self.key = key
        self.problems: list[Problem] = []
        self.key_places: dict[Path, Place] = {}
        self.value_places: dict[Path, Place] = {}
        self.tagged: set[Path] = set()
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
                self._refuse_tag(node, "tag:yaml.org,2002:seq", path)
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return self._scalar(node, place, path)
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
        self._refuse_tag(node, "tag:yaml.org,2002:map", path)
        values: dict[str, Any] = {}
        merged: list[tuple[yaml.Node, Place]] = []
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            key = self._key(key_node, place, path)
            if key is None:
                continue
            if key == _MERGE and _is_plain(key_node):
                self.problem(place, "merge keys (<<) are not supported; write the keys out")
                merged.append((value_node, place))
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
        for value_node, place in merged:
            self._merge(value_node, place, path, values)
        return values

    def _merge(self, node: yaml.Node, place: Place, path: Path, values: dict[str, Any]) -> None:
        """Add what a refused merge key would bring, so that nothing is called missing for it."""
        if not isinstance(node, yaml.MappingNode) or id(node) in self.open_nodes:
            return
        for key_node, value_node in node.value:
            key = key_node.value
            if isinstance(key, str) and key != _MERGE and key not in values:
                key_path = (*path, key)
                self.key_places[key_path] = place
                values[key] = self.value(value_node, key_path)

    def _key(self, node: yaml.Node, place: Place, path: Path) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.problem(place, "a key must be plain text")
            return None
        if not (node.value == _MERGE and _is_plain(node)):
            self._refuse_tag(node, _implicit_tag(node), (*path, node.value))
        return self._text(node.value, place)

    def _refuse_tag(self, node: yaml.Node, allowed: str, path: Path) -> None:
        if node.tag != allowed:
            self.tagged.add(path)
            self.problem(
                _place(node.start_mark),
                f"the tag {node.tag} is not allowed; a spec holds plain values only",
            )

    def _scalar(self, node: yaml.ScalarNode, place: Place, path: Path) -> Any:
        self._refuse_tag(node, _implicit_tag(node), path)
        if node.style is not None:  # quoted or block text is text
            return self._text(node.value, place)
        return self._plain(node.value, place, str(path[-1]) if path else self.key)

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
            reason = f"is no number; {clock}" if clock else reason
            self.problem(place, f"`{shortened(text)}` {reason}")
            return text
        found = number(text)
        if found is None:
            return self._text(text, place)
        if isinstance(found, float) and not math.isfinite(found):
            message = f"`{shortened(text)}` is not a finite number; none is allowed in a spec"
            self.problem(place, message)
        return found


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _implicit_tag(node: yaml.ScalarNode) -> str:
    """The tag that a scalar has if the file gives it none."""
    if node.style is not None:
        return "tag:yaml.org,2002:str"
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    return tag
