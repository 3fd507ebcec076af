"""Edits of a spec's text that keep comments, order and style of the rest.

A value is replaced in place, and a new key is added at the end of its mapping. An anchor stays,
and the target of an alias is not changed through it. The caller compares the meaning of the new
text with the intended one, because all aliases of a changed value change with it. PURE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.written_values import BOOLS, NULLS, parse_number, trap
from slurm_jobs.spec.yaml.document import KeyPath
from slurm_jobs.spec.yaml.tabs_as_blanks import SpecLoader

_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#.*\s+)*|$))+")
"""Anchor and tag of a node, and blanks between them and the value."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class EditError(InputError):
    """Value without a place in the text."""


class _Alias(yaml.ScalarNode):
    """Position of an alias; yaml's own composer stores the node of its anchor there."""


class _Composer(SpecLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if not self.check_event(yaml.AliasEvent):
            return super().compose_node(parent, index)
        event: Any = self.get_event()  # type: ignore[no-untyped-call]
        return _Alias("", event.anchor, event.start_mark, event.end_mark, "*")


def edit_text(text: str, changes: Iterable[tuple[KeyPath, Any]]) -> str:
    """Return the text with each value at its path; create missing mappings on the way.

    Args:
        text: of a spec without problems.
        changes: keys and list indices from the top, and the value; later ones see the result of
            earlier ones.

    Raises:
        EditError: there is no place for a value, or an edit left invalid YAML.
    """
    for path, value in changes:
        try:
            node = _Composer(text).get_single_node()
        except yaml.YAMLError as error:
            message = f"the edit before left invalid YAML ({error})"
            raise EditError(message) from error
        depth = 0
        while depth < len(path) and (child := _child(node, path[depth])) is not None:
            node, depth = child, depth + 1
        if depth < len(path):
            text = _inserted(text, node, path, depth, value)
        elif node is not None:
            text = _replaced(text, node, inline_text(value))
    return text


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((child for key, child in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child
    return None


def _replaced(text: str, node: yaml.Node, new: str) -> str:
    message = ""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        message = "a block of keys is not replaced by a value"
    elif isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        message = "a block of text is not replaced by a value"
    elif any("&" in _properties(text, inner) for inner in _inner(node)):
        message = "an anchor within it would be lost"
    if message:
        message = f"line {node.start_mark.line + 1}: {message}"
        raise EditError(message)
    start, end = node.start_mark.index + len(_properties(text, node)), node.end_mark.index
    gap = " " if start == end and text[start - 1 : start].strip() else ""
    return text[:start] + gap + new + text[end:]


def _properties(text: str, node: yaml.Node) -> str:
    """Return anchor and tag of a node, with the blanks after them; empty without."""
    match = _PROPERTIES.match(text[node.start_mark.index : node.end_mark.index])
    return match[0] if match else ""


def _inner(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield all nodes below one."""
    if isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for child in item if isinstance(item, tuple) else (item,):
                yield child
                yield from _inner(child)


def _inserted(text: str, node: yaml.Node | None, path: KeyPath, depth: int, value: Any) -> str:
    """Return the text with the key at `depth`, which `node` lacks, and all below it."""
    for step in reversed(path[depth + 1 :]):
        value = {step: value}
    key = path[depth]
    if isinstance(node, yaml.ScalarNode) and node.value in NULLS and node.style is None:
        return _replaced(text, node, inline_text({key: value}))
    if isinstance(node, _Alias):
        message = f"line {node.start_mark.line + 1}: *{node.value} is not changed in one place"
        raise EditError(message)
    if not isinstance(node, yaml.MappingNode) or not isinstance(key, str):
        message = f"there is no mapping for `{'.'.join(map(str, path))}`"
        raise EditError(message)
    entry = f"{key}: {inline_text(value)}"
    if not node.value:
        return _replaced(text, node, "{" + entry + "}")
    if node.flow_style:
        at = node.value[-1][1].end_mark.index
        return f"{text[:at]}, {entry}{text[at:]}"
    indent = " " * node.value[-1][0].start_mark.column
    line_end = text.find("\n", _last_index(node))
    at = len(text) if line_end < 0 else line_end
    ending = "\r\n" if text[:at].endswith("\r") else "\n"
    at -= len(ending) - 1
    return f"{text[:at]}{ending}{indent}{entry}{text[at:]}"


def _last_index(node: yaml.Node) -> int:
    """Return the end of a mapping's last value; a block itself ends where the next node begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_index(last[1] if isinstance(last, tuple) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        message = f"line {node.start_mark.line + 1}: nothing is put after a block of text"
        raise EditError(message)
    end: int = node.end_mark.index
    return end


def inline_text(value: Any) -> str:
    """Return a value on one line, in the syntax of a spec."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {inline_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(inline_text, value)) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value):
        is_number = parse_number(value) is not None
        if not (is_number or value in BOOLS or value in NULLS or trap(value)):
            return value
    text = json.dumps(value, ensure_ascii=False)
    # Readers of YAML 1.1 take `1e-05` for text, but not `1.0e-05`.
    is_short = isinstance(value, float) and "e" in text and "." not in text
    return text.replace("e", ".0e") if is_short else text
