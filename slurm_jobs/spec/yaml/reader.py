"""Reader of YAML text: plain values, each with its place, without YAML 1.1's silent conversions.

Scalars follow the core schema of YAML 1.2: `true`/`false`, `null`, decimal integers and floats
(so `1e-4` is a number). What YAML 1.1 readers silently convert (`no`, `1:30`, `0755`, `1_000`, a
date) is an error that says what to write. Tags are refused, so that a spec cannot make a reader
build an object. So are repeated keys. ruamel.yaml (0.19) cannot replace this reader: it takes
`0755` as 755, `1_000` as 1000 and a date as a date, stops at the first repeated key, refuses the
same tabs as PyYAML, and takes a third longer to load and read a spec (0.060 s instead of 0.046
s). PURE.
"""

from __future__ import annotations

import math
from typing import Any

import yaml

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.written_values import BOOLS, NULLS, parse_number, printable, shortened, trap
from slurm_jobs.spec.hints.number_remedies import clock_remedy
from slurm_jobs.spec.yaml.blanks import odd_blanks
from slurm_jobs.spec.yaml.document import KeyPath, Place, YamlDocument
from slurm_jobs.spec.yaml.parser_errors import explain
from slurm_jobs.spec.yaml.tabs_as_blanks import SpecLoader

MAX_CHARACTERS = 200_000
"""A spec has some thousands. The parser takes seconds for a longer text."""

MAX_NODES = 100_000
"""Limit for aliases, with which a small file can describe an enormous one; a spec has some hundreds
of nodes."""

MAX_DEPTH = 50
"""Limit for levels of nesting; a spec has about eight."""

_MERGE = "<<"

_RESOLVER: Any = yaml.SafeLoader("")


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
        refused=frozenset(reader.refused),
        problems=tuple(reader.problems),
        repeated=reader.repeated,
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
        if mark is not None:
            place = _place(mark)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        line_start = text.rfind("\n", 0, error.position) + 1
        place = Place(line=line, column=error.position - line_start + 1)
        message = f"the character {text[error.position : error.position + 1]!a} is not allowed"
    except RecursionError:
        message = f"nested more than {MAX_DEPTH} levels deep"
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
        self.refused: set[KeyPath] = set()
        self.repeated: dict[Problem, KeyPath] = {}
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
        if not self._is_within_limits(node, path):
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

    def _is_within_limits(self, node: yaml.Node, path: KeyPath) -> bool:
        """Count a node; add a problem if it is deeper than allowed, or one with which aliases end.

        Of the nodes after `MAX_NODES` only the first is a problem.
        """
        size_before = self.size
        self.size += 1
        if isinstance(node, yaml.ScalarNode):
            self.size += len(node.value) // 20
        if size_before >= MAX_NODES:
            return False
        if self.size >= MAX_NODES:
            message = f"aliases make this file larger than {MAX_NODES} values"
        elif id(node) in self.open_nodes:
            message = "this alias contains itself"
        elif len(path) > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep"
        else:
            return True
        self.problem(_place(node.start_mark), message)
        return False

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._refuse_tag(node, "tag:yaml.org,2002:map", path)
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(place, "a key must be plain text")
                continue
            if key_node.value == _MERGE and key_node.style is None:
                self.problem(place, "merge keys (<<) are not supported; write the keys out")
                self.refused.add(path)
                continue
            self._refuse_tag(key_node, _implicit_tag(key_node), (*path, key_node.value))
            key = self._text(key_node.value, place)
            key_path = (*path, key)
            if key in values:
                line = self.key_places[key_path].line
                repeated = f"key `{shortened(key)}` is repeated; it is already on line {line}"
                self.problem(place, repeated)
                self.repeated[self.problems[-1]] = key_path
                continue
            self.key_places[key_path] = place
            values[key] = self.value(value_node, key_path)
        return values

    def _refuse_tag(self, node: yaml.Node, allowed: str, path: KeyPath) -> None:
        if node.tag != allowed:
            self.refused.add(path)
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
        """Return the value of a text without quotes; `key` names the unit of a time."""
        if text in NULLS:
            return None
        if text in BOOLS:
            return BOOLS[text]
        refusal = trap(text)
        if refusal is not None:
            remedy = clock_remedy(key, text)
            self.problem(
                place,
                f"`{shortened(text)}` {f'is not a number; {remedy}' if remedy else refusal}",
            )
            return text
        number = parse_number(text)
        if number is None:
            return self._text(text, place)
        if not math.isfinite(number):
            message = f"`{shortened(text)}` is not a finite number; none is allowed in a spec"
            self.problem(place, message)
        return number


def _implicit_tag(node: yaml.ScalarNode) -> str:
    """Return the tag of a scalar to which the file gives none."""
    if node.style is not None:
        return "tag:yaml.org,2002:str"
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    return tag
