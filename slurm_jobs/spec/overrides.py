"""Values from the command line: `--set stages.train.resources.nodes=1`. PURE."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from slurm_jobs.shared.errors import InputError, Problem, did_you_mean
from slurm_jobs.shared.redact import BOOLS, NULLS, parse_number, printable, trap
from slurm_jobs.spec.combinations import origin_of
from slurm_jobs.spec.graph import stage_views
from slurm_jobs.spec.matrix import expand_matrix, with_changed_matrices
from slurm_jobs.spec.yaml.document import KeyPath, Place, YamlDocument, problem_at
from slurm_jobs.spec.yaml.reader import read_yaml

# Edits of a spec's text that keep comments, order and style of the rest.
#
# A value is replaced in place, and a new key is added at the end of its mapping. An anchor stays,
# and the target of an alias is not changed through it. The caller compares the meaning of the new
# text with the intended one, because all aliases of a changed value change with it.


_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#.*\s+)*|$))+")
"""Anchor and tag of a node, and blanks between them and the value."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class EditError(InputError):
    """Value without a place in the text."""


class _Alias(yaml.ScalarNode):
    """Position of an alias; yaml's own composer stores the node of its anchor there."""


class _Composer(yaml.SafeLoader):
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
            text = _replaced(text, node, flow_text(value))
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
        return _replaced(text, node, flow_text({key: value}))
    if isinstance(node, _Alias):
        message = f"line {node.start_mark.line + 1}: *{node.value} is not changed in one place"
        raise EditError(message)
    if not isinstance(node, yaml.MappingNode) or not isinstance(key, str):
        message = f"there is no mapping for `{'.'.join(map(str, path))}`"
        raise EditError(message)
    entry = f"{key}: {flow_text(value)}"
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


def flow_text(value: Any) -> str:
    """Return a value on one line, in the syntax of a spec."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value):
        is_number = parse_number(value) is not None
        if not (is_number or value in BOOLS or value in NULLS or trap(value)):
            return value
    return json.dumps(value, ensure_ascii=False)


def apply_overrides(document: YamlDocument, overrides: Sequence[str]) -> YamlDocument:
    """Return the document with each `KEY.KEY=VALUE` applied; VALUE is parsed as YAML."""
    for override in overrides:
        document = _apply(document, override)
    return document


def steps_of(override: str) -> list[str]:
    """Return the keys on the way to the value: `stages.train.retries=1` has three."""
    return override.partition("=")[0].strip().split(".")


def sets_value(override: str, path: Sequence[str]) -> bool:
    """Check whether the override sets the value at `path`: alone, or as a part of a mapping."""
    steps = steps_of(override)
    if list(path[: len(steps)]) != steps:
        return False
    value = read_yaml(override.partition("=")[2], source_of(override)).value
    for key in path[len(steps) :]:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def source_of(override: str) -> str:
    """Return the source that problems with its value name."""
    return printable(f"--set {override}")


def lacks_stage(value: Any, steps: Sequence[str]) -> bool:
    """Check whether the keys lead into a stage that `value` lacks; a whole new stage is allowed."""
    stages = value.get("stages") if isinstance(value, dict) else None
    known = {} if stages is None else stages
    leads_into = steps[0] == "stages" and len(steps) > 2
    return leads_into and isinstance(known, dict) and steps[1] not in known


def _apply(document: YamlDocument, override: str) -> YamlDocument:
    _, equals, text = override.partition("=")
    source, steps = source_of(override), steps_of(override)
    message = ""
    if not equals or not all(steps):
        message = "write KEY.KEY=VALUE, such as stages.train.resources.nodes=1"
    else:
        parsed = read_yaml(text, source, key=steps[-1])
        if parsed.problems:
            moved = tuple(p.changed(line=0) for p in parsed.problems)
            return dataclasses.replace(document, problems=(*document.problems, *moved))
        value = copy.deepcopy(document.value)
        try:
            path = _put(value, steps, parsed.value)
        except LookupError as error:
            message = str(error.args[0])
    if message:
        problem = Problem(file=source, line=0, column=0, message=message)
        return dataclasses.replace(document, problems=(*document.problems, problem))
    # The places at and under `path` are those of the command line: line 0.
    place = {path: Place(line=0, column=0)}
    depth = len(path)
    return dataclasses.replace(
        document,
        value=value,
        key_places={p: v for p, v in document.key_places.items() if p[:depth] != path} | place,
        value_places={p: v for p, v in document.value_places.items() if p[:depth] != path} | place,
        sources={**document.sources, path: source},
    )


def _put(holder: Any, steps: Sequence[str], value: Any) -> KeyPath:
    """Put `value` into `holder`; create missing mappings and lists on the way.

    Returns:
        Path of the first thing that was created: the value, or its container.

    Raises:
        LookupError: a value on the way has no such key.
    """
    if lacks_stage(holder, steps):
        raise LookupError(_no_stage(holder.get("stages") or {}, steps))
    path: KeyPath = ()
    created: KeyPath = ()
    for i, step in enumerate(steps):
        index: Any = _index(holder, step, ".".join(steps[:i]) or "the file")
        path = (*path, index)
        is_new = isinstance(holder, list) and index == len(holder)
        below = None
        if not is_new:
            below = holder.get(index) if isinstance(holder, dict) else holder[index]
        if i == len(steps) - 1 or below is None:
            created = created or path
            container: Any = [] if steps[i + 1 : i + 2] == ["0"] else {}
            below = value if i == len(steps) - 1 else container
            if is_new:
                holder.append(below)
            else:
                holder[index] = below
        holder = below
    return created


def _index(holder: Any, step: str, where: str) -> str | int:
    if isinstance(holder, dict):
        return step
    if not isinstance(holder, list):
        message = f"`{where}` holds no keys, so `{step}` has no place in it"
        raise LookupError(message)  # noqa: TRY004 - it is the user's key that is wrong
    if not step.isdecimal() or len(step) > 9 or int(step) > len(holder):
        message = (
            f"`{where}` is a list of {len(holder)}; `{step}` is none of its places "
            f"(from 0; {len(holder)} appends)"
        )
        raise LookupError(message)
    return int(step)


def _no_stage(stages: dict[str, Any], steps: Sequence[str]) -> str:
    """Return a message that there is no such stage; one with a matrix became its combinations."""
    name, rest = steps[1], ".".join(steps[2:])
    members = [
        member
        for member, stage in stages.items()
        if isinstance(stage, dict) and origin_of(member, stage.get("matrix")) == name
    ]
    if members:
        return (
            f"stage `{name}` has a matrix, and is its combinations by now: set each by its name "
            f"(--set stages.{members[0]}.{rest}=...; those are {', '.join(members)}), or all of "
            "them with --update-spec in addition, which reads the spec's file again"
        )
    return f"there is no stage `{name}`{did_you_mean(name, stages)} (stages: {', '.join(stages)})"


_WITHOUT_LIMIT = frozenset({"consolidate", "train", "report"})
"""Built-in stages without a limit on samples."""


def override_problems(document: YamlDocument, typed: Collection[str]) -> list[Problem]:
    """Return a problem for a limit among the overrides just `typed` that no stage would use."""
    if not any(steps_of(override) == ["limit"] for override in typed):
        return []
    limit = document.value.get("limit") if isinstance(document.value, dict) else None
    views = stage_views(document.value).values()
    may_ask = [v for v in views if v.run not in _WITHOUT_LIMIT and v.keys.get("shell") is None]
    if not isinstance(limit, int) or may_ask or not views:
        return []
    message = (
        "limit: no stage of this spec takes it: `run: preprocess` takes so many samples of its "
        "manifest, and a function of yours may (`context.limit`); leave it out"
    )
    return [problem_at(document, ("limit",), message)]


# Order of overrides and matrices: overrides applied before and after the expansion.
#
# `stages.train.retries=1` changes the stage in the file; `stages.train-2.retries=1` changes one of
# the combinations that it becomes. A resume that reads the file again applies the overrides that
# were set earlier for its run. Those of stages that no longer exist are left out.


@dataclass(frozen=True, kw_only=True, slots=True)
class Expanded:
    """Document with overrides, in which combinations are stages."""

    document: YamlDocument
    origins: Mapping[str, str]
    """Name in the file of each combination."""
    overrides: tuple[str, ...]
    """Overrides that were applied, in order."""
    left_out: tuple[str, ...]
    """Descriptions of earlier overrides whose stage no longer exists."""


def expand_with(
    document: YamlDocument, overrides: Sequence[str], *, earlier: Sequence[str] = ()
) -> Expanded:
    """Return the document with overrides applied and matrices expanded.

    Problems are added to the document.

    Args:
        document: content of the file.
        overrides: of this command; one that names no stage is a problem.
        earlier: set before `overrides`, when the file may have been another.
    """
    texts = [*earlier, *overrides]
    keys = [steps_of(text) for text in texts]
    dropped: dict[int, str] = {}
    """Why an earlier override has no place; empty if a later one sets its key or one above it."""

    def put(document: YamlDocument, number: int) -> YamlDocument:
        changed = apply_overrides(document, [texts[number]])
        if number >= len(earlier) or changed.problems == document.problems:
            return changed
        if is_covered[number]:
            dropped[number] = ""
        elif lacks_stage(document.value, keys[number]):
            dropped[number] = changed.problems[-1].message
        return document if number in dropped else changed

    is_covered = [any(steps[: len(k)] == k for k in keys[n + 1 :]) for n, steps in enumerate(keys)]
    late = []
    for number, steps in enumerate(keys):
        if lacks_stage(document.value, steps) and not (
            number < len(earlier) and is_covered[number]
        ):
            late.append(number)
        else:
            document = put(document, number)
    expanded, origins = expand_matrix(document)
    document = expanded
    for number in late:
        document = put(document, number)
    document = with_changed_matrices(
        expanded,
        document,
        lambda name: f"`{name}` is one combination; set stages.{origins.get(name, name)}.matrix",
    )
    return Expanded(
        document=document,
        origins=origins,
        overrides=tuple(text for number, text in enumerate(texts) if number not in dropped),
        left_out=tuple(  # without their values, which may be secrets
            f"--set {printable('.'.join(keys[number]))}=..., which was set earlier for this run, "
            f"is left out: {why}"
            for number, why in sorted(dropped.items())
            if why
        ),
    )


def marked_earlier(
    problems: Sequence[Problem], earlier: Sequence[str], overrides: Sequence[str]
) -> list[Problem]:
    """Return the problems; those of earlier overrides have a remedy too."""
    keys = {source_of(text): ".".join(steps_of(text)) for text in earlier}
    for text in overrides:
        keys.pop(source_of(text), None)
    remedies = {
        source: (
            "; this was set earlier for this run, and is put into the file again: replace it with "
            f"--set {key}=..., or set a key above it"
        )
        for source, key in keys.items()
    }
    return [
        problem.changed(message=problem.message + remedies.get(problem.file, ""))
        for problem in problems
    ]
