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
from slurm_jobs.spec.graph import stage_views
from slurm_jobs.spec.matrix import expand_matrix, with_changed_matrices
from slurm_jobs.spec.model import origin_of
from slurm_jobs.spec.yaml import KeyPath, Place, YamlDocument, problem_at, read_yaml

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
        text = _edited(text, path, value)
    return text


def _edited(text: str, path: KeyPath, value: Any) -> str:
    try:
        node = _Composer(text).get_single_node()
    except yaml.YAMLError as error:
        message = f"the edit before left invalid YAML ({error})"
        raise EditError(message) from error
    for depth, step in enumerate(path):
        found = _child(node, step)
        if found is None:
            return _inserted(text, node, path, depth, value)
        node = found
    assert node is not None
    return _replaced(text, node, flow_text(value))


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((child for key, child in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child
    return None


def _replaced(text: str, node: yaml.Node, new: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    old = text[start:end]
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        message = f"line {node.start_mark.line + 1}: a block of keys is not replaced by a value"
        raise EditError(message)
    if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        message = f"line {node.start_mark.line + 1}: a block of text is not replaced by a value"
        raise EditError(message)
    if any(_anchored(text, inner) for inner in _inner(node)):
        message = f"line {node.start_mark.line + 1}: an anchor within it would be lost"
        raise EditError(message)
    kept = _PROPERTIES.match(old)
    start += kept.end() if kept else 0
    gap = " " if start == end and text[start - 1 : start].strip() else ""
    return text[:start] + gap + new + text[end:]


def _inner(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield all nodes below one."""
    if isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for child in item if isinstance(item, tuple) else (item,):
                yield child
                yield from _inner(child)


def _anchored(text: str, node: yaml.Node) -> bool:
    kept = _PROPERTIES.match(text[node.start_mark.index : node.end_mark.index])
    return kept is not None and "&" in kept[0]


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
    at = _end_of_line(text, _last_index(node))
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


def _end_of_line(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found


def flow_text(value: Any) -> str:
    """Return a value on one line, in the syntax of a spec."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if isinstance(value, str) and _is_plain(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    means_other = text in BOOLS or text in NULLS or trap(text) or parse_number(text) is not None
    return _WORD.fullmatch(text) is not None and not means_other


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
    source = source_of(override)
    steps = steps_of(override)
    if not equals or not all(steps):
        message = "write KEY.KEY=VALUE, such as stages.train.resources.nodes=1"
        return _with_problem(document, source, message)
    parsed = read_yaml(text, source, key=steps[-1])
    if parsed.problems:
        moved = tuple(dataclasses.replace(p, line=0) for p in parsed.problems)
        return dataclasses.replace(document, problems=(*document.problems, *moved))
    value = copy.deepcopy(document.value)
    try:
        path = _put(value, steps, parsed.value)
    except LookupError as error:
        return _with_problem(document, source, str(error.args[0]))
    return _moved(document, value, path, source)


def _put(holder: Any, steps: Sequence[str], value: Any) -> KeyPath:
    """Put `value` into `holder`; create missing mappings on the way.

    Returns:
        Path of the first thing that was created: the value, or its container.

    Raises:
        LookupError: a value on the way has no such key.
    """
    if lacks_stage(holder, steps):
        raise LookupError(_no_stage(holder.get("stages") or {}, steps))
    path: KeyPath = ()
    made: KeyPath | None = None
    for i, step in enumerate(steps):
        index = _index(holder, step, ".".join(steps[:i]) or "the file")
        path = (*path, index)
        is_last = i == len(steps) - 1
        if is_last or _at(holder, index) is None:
            made = path if made is None else made
            _set(holder, index, value if is_last else _container(steps[i + 1]))
        holder = _at(holder, index)
    assert made is not None
    return made


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


def _container(next_step: str) -> Any:
    """Return the container of `next_step`: a list if that is its first place."""
    return [] if next_step == "0" else {}


def _at(holder: Any, index: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(index)
    return holder[index] if index < len(holder) else None


def _set(holder: Any, index: Any, value: Any) -> None:
    if isinstance(holder, list) and index == len(holder):
        holder.append(value)
    else:
        holder[index] = value


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


def _moved(document: YamlDocument, value: Any, path: KeyPath, source: str) -> YamlDocument:
    """Assign the places at and under `path` to the command line: line 0."""
    place = Place(line=0, column=0)

    def outside(places: dict[KeyPath, Place]) -> dict[KeyPath, Place]:
        kept = {p: v for p, v in places.items() if p[: len(path)] != path}
        return {**kept, path: place}

    return dataclasses.replace(
        document,
        value=value,
        key_places=outside(document.key_places),
        value_places=outside(document.value_places),
        sources={**document.sources, path: source},
    )


def _with_problem(document: YamlDocument, source: str, message: str) -> YamlDocument:
    problem = Problem(file=source, line=0, column=0, message=message)
    return dataclasses.replace(document, problems=(*document.problems, problem))


_WITHOUT_LIMIT = frozenset({"consolidate", "train", "report"})
"""Built-in stages without a limit on samples."""


def limit_problems(document: YamlDocument, typed: Collection[str]) -> list[Problem]:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Given:
    text: str
    is_earlier: bool
    is_covered: bool
    """True if a later override sets the same key, or one above it."""


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
    given = _given(earlier, overrides)
    dropped: dict[int, str | None] = {}
    late = []
    for index, one in enumerate(given):
        no_stage = lacks_stage(document.value, steps_of(one.text))
        if no_stage and not (one.is_earlier and one.is_covered):
            late.append(index)
            continue
        document, dropped[index] = _put_in_order(document, one)
    expanded, origins = expand_matrix(document)
    document = expanded
    for index in late:
        document, dropped[index] = _put_in_order(document, given[index])
    document = with_changed_matrices(
        expanded,
        document,
        lambda name: f"`{name}` is one combination; set stages.{origins.get(name, name)}.matrix",
    )
    return Expanded(
        document=document,
        origins=origins,
        overrides=tuple(one.text for number, one in enumerate(given) if dropped[number] is None),
        left_out=tuple(_left_out(given[n].text, why) for n, why in sorted(dropped.items()) if why),
    )


def marked_earlier(
    problems: Sequence[Problem], earlier: Sequence[str], overrides: Sequence[str]
) -> list[Problem]:
    """Return the problems; those of earlier overrides have a remedy too."""
    keys = {source_of(text): ".".join(steps_of(text)) for text in earlier}
    for text in overrides:
        keys.pop(source_of(text), None)
    return [
        dataclasses.replace(problem, message=f"{problem.message}; {_way_out(keys[problem.file])}")
        if problem.file in keys
        else problem
        for problem in problems
    ]


def _way_out(key: str) -> str:
    return (
        "this was set earlier for this run, and is put into the file again: replace it with "
        f"--set {key}=..., or set a key above it"
    )


def _given(earlier: Sequence[str], overrides: Sequence[str]) -> list[_Given]:
    texts = [*earlier, *overrides]
    keys = [steps_of(text) for text in texts]
    return [
        _Given(
            text=text,
            is_earlier=number < len(earlier),
            is_covered=any(keys[number][: len(k)] == k for k in keys[number + 1 :]),
        )
        for number, text in enumerate(texts)
    ]


def _put_in_order(document: YamlDocument, given: _Given) -> tuple[YamlDocument, str | None]:
    """Apply an override; on failure return the document and why an earlier one has no place.

    If a later override replaces the earlier one, the reason is empty.
    """
    changed = apply_overrides(document, [given.text])
    if not given.is_earlier or changed.problems == document.problems:
        return changed, None
    if given.is_covered:
        return document, ""
    if lacks_stage(document.value, steps_of(given.text)):
        return document, changed.problems[-1].message
    return changed, None


def _left_out(override: str, why: str) -> str:
    """Describe an override that is left out, without its value, which may be a secret."""
    key = printable(".".join(steps_of(override)))
    return f"--set {key}=..., which was set earlier for this run, is left out: {why}"
