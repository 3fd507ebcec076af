"""Plain values -> a validated model, with every problem at its line and column. PURE.

Pydantic finds what is wrong. This module says it in the project's words: what is wrong, the value,
what is allowed, and the nearest valid word.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.written_values import describe, shortened
from slurm_jobs.formats.config import problems_in
from slurm_jobs.spec.hints.foreign_keys import Hint, foreign_key, places_elsewhere
from slurm_jobs.spec.hints.list_remedies import list_remedy
from slurm_jobs.spec.hints.mapping_remedies import mapping_remedy
from slurm_jobs.spec.hints.number_remedies import value_remedy
from slurm_jobs.spec.model_keys import known_keys, refusal
from slurm_jobs.spec.sbatch_options import option_hint
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at, was_set

_EXPECTED = {
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type"), "keys and values"),
    "model_attributes_type": "keys and values",
}
_MEANT = {"gpu": "cuda"}
"""Words that look more like a word of another meaning (`cpu`)."""
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_MISSING = {"missing", "missing_argument", "missing_keyword_only_argument"}


def validate_values(
    target: Any, document: YamlDocument, values: Any, prefix: KeyPath
) -> tuple[Any, list[Problem]]:
    """Validate `values`, which are at `prefix` in `document`, against the type `target`.

    Returns:
        The validated object (None if there are problems) and the problems.
    """
    try:
        # JSON mode: strict about numbers and text, but takes a list for a tuple.
        return _adapter(target).validate_json(json.dumps(values), strict=True), []
    except ValidationError as error:
        entries = _of_meant_branches(values, error.errors(include_url=False))
    problems = []
    for group in _by_place(values, entries):
        entry = group[0]
        if entry["type"] == "value_error" and entry["loc"][-1:] != ("[key]",):
            path = (*prefix, *_known_part(values, entry["loc"]))
            problems += [
                _own_check_problem(document, path, message, entry["input"])
                for message in problems_in(entry["ctx"]["error"])
            ]
        else:
            problems.append(_problem(target, document, values, prefix, group))
    return None, list(dict.fromkeys(problems))


@functools.cache
def _adapter(target: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type, made once: it takes 60 ms, and a matrix needs it 500 times."""
    return TypeAdapter(target)


def readable_fields(
    target: Any, document: YamlDocument, values: Mapping[str, Any], prefix: KeyPath
) -> tuple[Any, frozenset[str], list[Problem]]:
    """Return what is valid of a config that has problems; every field of `target` has a default.

    Returns:
        A namespace with the fields that are valid alone, and the defaults of the others; the names
        of the fields with invalid values; and the problems of the config's own check of its fields,
        which pydantic skips if a field is invalid.
    """
    fields: dict[str, Any] = {}
    unreadable = set()
    hints = typing.get_type_hints(target, include_extras=True)
    for field in dataclasses.fields(target):
        fields[field.name] = field.default
        if field.name not in values:
            continue
        adapter: TypeAdapter[Any] = TypeAdapter(hints[field.name])
        try:
            text = json.dumps(values[field.name])
            fields[field.name] = adapter.validate_json(text, strict=True)
        except ValidationError:
            unreadable.add(field.name)
    problems = []
    try:
        target(**fields)
    except ValueError as error:
        messages = problems_in(error)
        follows = re.compile("|".join([rf"\b{key}\b" for key in unreadable]) or "(?!)")
        problems = [
            _own_check_problem(document, prefix, message, values)
            for message in messages
            if not follows.search(message)
        ]
        unreadable |= {str(step) for m in messages for step in _named_first(m, values)[:1]}
    return types.SimpleNamespace(**fields), frozenset(unreadable), problems


def _of_meant_branches(values: Any, entries: Sequence[Any]) -> list[Any]:
    """Leave out what other branches of a union want, if one branch has mistakes further below."""
    locations = [entry["loc"] for entry in entries]

    def is_meant(location: tuple[str | int, ...]) -> bool:
        outer, depth = location[:-1], len(location)
        is_branch = len(_known_part(values, location)) < depth
        return not is_branch or not any(
            len(other) > depth and other[: depth - 1] == outer for other in locations
        )

    return [e for e in entries if e["type"] not in _EXPECTED or is_meant(e["loc"])]


def _by_place(values: Any, entries: Iterable[Any]) -> list[list[Any]]:
    """Return each entry alone, but what the branches of a union expect at one place together."""
    groups: list[list[Any]] = []
    unexpected: dict[KeyPath, list[Any]] = {}
    for entry in entries:
        location = _known_part(values, entry["loc"])
        if entry["type"] in _EXPECTED and location in unexpected:
            unexpected[location].append(entry)
            continue
        group = [entry]
        groups.append(group)
        if entry["type"] in _EXPECTED:
            unexpected[location] = group
    return groups


def _problem(
    target: Any, document: YamlDocument, values: Any, prefix: KeyPath, entries: Sequence[Any]
) -> Problem:
    entry = entries[0]
    location = _known_part(values, entry["loc"])
    path = (*prefix, *location)
    kind = entry["type"]
    name = path_text(path) or "the file"
    at_key = True
    if kind in _UNKNOWN:
        message = _unknown_key(target, values, prefix, location, entry["input"])
    elif kind in _MISSING:
        message = f"key `{entry['loc'][-1]}` is missing in {name}"
    elif kind == "value_error":
        message = f"{path_text(path[:-1]) or 'the file'}: {entry['ctx']['error']}"
    else:
        message = f"{name}: {_wrong_value(target, name, location, entries)}"
        at_key = isinstance(entry["input"], (dict, list)) or entry["input"] is None
    return problem_at(document, path, message, at_key=at_key)


def _unknown_key(target: Any, values: Any, prefix: KeyPath, location: KeyPath, value: Any) -> str:
    key = str(location[-1])
    holder = location[:-1]
    known = known_keys(target, holder)
    foreign = foreign_key(target, values, location)
    meant = _foreign_hint(foreign, prefix) if foreign is not None else ""
    places = places_elsewhere(target, location)
    shown = " or ".join(f"`{path_text((*prefix, *place))}`" for place in places)
    elsewhere = f"; here it is {shown}" if shown else ""
    is_below = all(place[: len(holder)] == holder for place in places)
    is_above = all(place[:-1] == holder[: len(place) - 1] for place in places)
    hints = (
        option_hint(key, known, value),
        meant if foreign is not None and foreign.is_near else "",
        elsewhere if is_below else "",
        did_you_mean(key, known),
        elsewhere if is_above else "",
        meant,
        elsewhere,
    )
    hint = next(filter(None, hints), "")
    return f"unknown key `{shortened(key)}`{hint} (allowed: {', '.join(known)})"


def _foreign_hint(hint: Hint, prefix: KeyPath) -> str:
    own_key = hint.own
    if not own_key.path:
        return f"; {own_key.note}"
    note = f", {own_key.note}" if own_key.note else ""
    if not hint.place:
        where = f"`{own_key.path}` in the config of the stage that runs `{own_key.stage}`"
        return f"; here it is {where}: write `{hint.example}` there{note}"
    place = path_text((*prefix, *hint.place))
    return f"; here it is `{place}`: write `{hint.example}`{note}"


def _wrong_value(target: Any, name: str, location: KeyPath, entries: Sequence[Any]) -> str:
    """Return what is wrong with a value, and what to write instead if that is known."""
    entry = entries[0]
    kind, value = entry["type"], entry["input"]
    if kind == "literal_error":
        allowed = entry["ctx"]["expected"].replace("'", "`")
        word, words = str(value), re.findall(r"`([^`]+)`", allowed)
        meant = _MEANT.get(word, "")
        near = did_you_mean(meant if meant in words else word, words)
        return f"found {describe(value)}; allowed: {allowed}{near}"
    if kind in {"string_too_short", "too_short"}:
        return "must not be empty"
    if kind not in _EXPECTED:
        return f"{entry['msg'].replace('Input should be', 'must be')}, found {describe(value)}"
    expected, remedy = _EXPECTED[kind], ""
    if kind == "string_type" and value is None:
        remedy = "; YAML reads an empty value, `null` and `~` without quotes as nothing"
    elif expected == "a list":
        remedy = list_remedy(value, functools.partial(refusal, target, location))
    elif expected != "keys and values":
        remedy = value_remedy(name, kind, value)
    if expected in {"a list", "keys and values"}:
        remedy = remedy or mapping_remedy(target, location, value)
    kinds = " or ".join(_EXPECTED[entry["type"]] for entry in entries)
    return f"expected {kinds}, found {describe(value)}{remedy}"


def _own_check_problem(document: YamlDocument, path: KeyPath, error: str, values: Any) -> Problem:
    """Return what a value's own check says, at the first key that it names.

    Of several keys, the one that was set on the command line is the cause.
    """
    first = _named_first(error, values)
    # A message about `phases.1` means the keys of that phase before others.
    holders = [first[:length] for length in range(len(first), -1, -1)]
    every = (_named(word, values, holders) for word in re.findall(r"\w[\w.]*\w", error))
    named = next((n for n in every if n and was_set(document, path, (*path, *n))), first)
    at_key = isinstance(values, dict) and not named
    message = f"{path_text(path) or 'the file'}: {error}"
    return problem_at(document, (*path, *named), message, at_key=at_key)


def _known_part(values: Any, location: Iterable[str | int]) -> KeyPath:
    """Return the part of pydantic's location that exists in the values: unions add branches."""
    path: list[str | int] = []
    for step in location:
        if isinstance(values, dict) and step in values:
            values = values[step]
        elif isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]  # the same words, another type for mypy
        else:
            continue
        path.append(step)
    return tuple(path)


def _named_first(error: str, values: Any) -> KeyPath:
    """Return the key that a config's own check names in its first word (`num_steps is 0: ...`)."""
    return _named(error.partition(" ")[0], values)


def _named(word: str, values: Any, holders: Sequence[KeyPath] = ((),)) -> KeyPath:
    """Return where `batching.kind` is in `values`: below `batching`, or directly.

    `phases.1.learn` is in the second item of a list. The first of the `holders` that has it counts.
    """
    steps: KeyPath = tuple(int(s) if s.isdecimal() else s for s in word.split("."))
    paths = ((*holder, *part) for part in (steps, steps[-1:]) for holder in holders)
    return next((path for path in paths if _known_part(values, path) == path), ())
