"""Plain values -> a validated model, with every complaint at its line and column. PURE.

Pydantic finds what is wrong; this module says it in the project's words:
what is wrong, what was found, what is allowed, did you mean.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slurm_jobs.common.config_values import problems_in
from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.spec.model_keys import known_keys, refusal
from slurm_jobs.spec.plain_text import describe, printable, shortened
from slurm_jobs.spec.remedies.foreign_keys import Hint, foreign_key, places_elsewhere
from slurm_jobs.spec.remedies.list_remedies import list_remedy
from slurm_jobs.spec.remedies.mapping_forms import mapping_remedy
from slurm_jobs.spec.remedies.sbatch_options import option_hint
from slurm_jobs.spec.remedies.value_remedies import split_number, value_remedy
from slurm_jobs.spec.value_paths import known_part, named_first, named_in
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "dataclass_type": "keys and values",
    "model_attributes_type": "keys and values",
}
_MEANT = {"gpu": "cuda"}
"""Words that are nearer by their letters to one that means another thing (`cpu`)."""
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_MISSING = {"missing", "missing_argument", "missing_keyword_only_argument"}


def validate_values(
    target: Any, document: YamlDocument, values: Any, prefix: Path
) -> tuple[Any, list[Problem]]:
    """Validate `values`, which stand at `prefix` in `document`, against the type `target`.

    Returns:
        The validated object (None if there are problems) and the problems.
    """
    adapter = _adapter(target)
    try:
        # JSON mode: strict about numbers and text, and yet takes a list for a tuple.
        return adapter.validate_json(json.dumps(values), strict=True), []
    except ValidationError as error:
        problems = [
            problem
            for entry in _of_meant_branches(values, error.errors(include_url=False))
            for problem in _problems(target, document, values, prefix, entry)
        ]
    return None, _merge(problems)


@functools.cache
def _adapter(target: Any) -> TypeAdapter[Any]:
    """Made once for a type: a matrix of 500 is 500 times the same one, 60 ms each."""
    return TypeAdapter(target)


def readable_fields(
    target: Any, document: YamlDocument, values: Mapping[str, Any], prefix: Path
) -> tuple[Any, frozenset[str], list[Problem]]:
    """What is right of a config that has problems; every field of `target` has a default.

    Returns:
        A namespace with the fields that are right by themselves, and the defaults of the others;
        the names of the fields whose values are wrong; and what the config's own check of its
        fields says, which pydantic leaves out where one of them is wrong.
    """
    found: dict[str, Any] = {}
    unreadable = set()
    hints = typing.get_type_hints(target, include_extras=True)
    for field in dataclasses.fields(target):
        found[field.name] = field.default
        if field.name not in values:
            continue
        adapter: TypeAdapter[Any] = TypeAdapter(hints[field.name])
        try:
            text = json.dumps(values[field.name])
            found[field.name] = adapter.validate_json(text, strict=True)
        except ValidationError:
            unreadable.add(field.name)
    problems = []
    try:
        target(**found)
    except ValueError as error:
        said = problems_in(error)
        follows = re.compile("|".join([rf"\b{key}\b" for key in unreadable]) or "(?!)")
        problems = [
            _own_check_problem(document, prefix, message, values)
            for message in said
            if not follows.search(message)
        ]
        unreadable |= {str(step) for m in said for step in named_first(m, values)[:1]}
    return types.SimpleNamespace(**found), frozenset(unreadable), problems


def problem_at(
    document: YamlDocument, path: Path, message: str, *, at_key: bool = False
) -> Problem:
    """A problem at the nearest place that the file knows for `path`.

    What is not there itself is told at the key of what lacks it.
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
    return Problem(file=file, line=line, column=column, message=printable(message))


def path_text(path: Path) -> str:
    """A path as a user writes it: `stages.train.setup[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _of_meant_branches(values: Any, entries: Iterable[Any]) -> list[Any]:
    """Without what another branch of a union wants, where one was meant and has mistakes within."""
    found = list(entries)
    deep = [(entry["loc"], len(entry["loc"])) for entry in found]

    def is_meant(location: tuple[str | int, ...]) -> bool:
        outer, depth = location[:-1], len(location)
        is_branch = len(known_part(values, location)) < depth
        others = (o for o, length in deep if length > depth and o[: depth - 1] == outer)
        return not is_branch or not any(others)

    return [e for e in found if e["type"] not in _EXPECTED or is_meant(e["loc"])]


def _problems(
    target: Any, document: YamlDocument, values: Any, prefix: Path, entry: Any
) -> list[Problem]:
    """Of one entry of pydantic's: several where a config's own check says several."""
    if entry["type"] != "value_error" or entry["loc"][-1:] == ("[key]",):
        return [_problem(target, document, values, prefix, entry)]
    path, error = (*prefix, *known_part(values, entry["loc"])), entry["ctx"]["error"]
    said = problems_in(error)
    return [_own_check_problem(document, path, message, entry["input"]) for message in said]


def _problem(target: Any, document: YamlDocument, values: Any, prefix: Path, entry: Any) -> Problem:
    location = known_part(values, entry["loc"])
    path = (*prefix, *location)
    kind = entry["type"]
    name = path_text(path) or "the file"
    if kind in _UNKNOWN:
        message = _unknown_key(target, values, prefix, location, entry["input"])
        return problem_at(document, path, message, at_key=True)
    if kind in _MISSING:
        key = str(entry["loc"][-1])
        return problem_at(document, path, f"key `{key}` is missing in {name}", at_key=True)
    if kind == "value_error":
        message = f"{path_text(path[:-1]) or 'the file'}: {entry['ctx']['error']}"
        return problem_at(document, path, message, at_key=True)
    message = _value_message(target, name, location, entry)
    at_key = isinstance(entry["input"], (dict, list)) or entry["input"] is None
    return problem_at(document, path, message, at_key=at_key)


def _unknown_key(target: Any, values: Any, prefix: Path, location: Path, value: Any) -> str:
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
        split_number(key, value, _value_at(values, holder)),
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


def _value_at(values: Any, path: Path) -> Any:
    for part in path:
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _foreign_hint(hint: Hint, prefix: Path) -> str:
    own = hint.own
    if not own.path:
        return f"; {own.note}"
    note = f", {own.note}" if own.note else ""
    if not hint.place:
        where = f"`{own.path}` in the config of the stage that runs `{own.stage}`"
        return f"; here it is {where}: write `{hint.example}` there{note}"
    place = path_text((*prefix, *hint.place))
    return f"; here it is `{place}`: write `{hint.example}`{note}"


def _value_message(target: Any, name: str, location: Path, entry: Any) -> str:
    kind, found = entry["type"], describe(entry["input"])
    if kind == "literal_error":
        allowed = entry["ctx"]["expected"].replace("'", "`")
        word, words = str(entry["input"]), re.findall(r"`([^`]+)`", allowed)
        meant = _MEANT.get(word, "")
        near = did_you_mean(meant if meant in words else word, words)
        return f"{name}: found {found}; allowed: {allowed}{near}"
    if kind in _EXPECTED:
        remedy = _remedy(target, name, location, entry)
        if kind == "string_type" and entry["input"] is None:
            remedy = "; YAML takes an empty value, `null` and `~` without quotes for nothing"
        return f"{name}: expected {_EXPECTED[kind]}, found {found}{remedy}"
    if kind in {"string_too_short", "too_short"}:
        return f"{name}: must not be empty"
    return f"{name}: {entry['msg'].replace('Input should be', 'must be')}, found {found}"


def _remedy(target: Any, name: str, location: Path, entry: Any) -> str:
    """What to write instead of a value of the wrong kind, where that can be told."""
    kind, value = entry["type"], entry["input"]
    if _EXPECTED[kind] == "keys and values":
        return mapping_remedy(target, location, value)
    if _EXPECTED[kind] == "a list":
        found = list_remedy(name, value, functools.partial(refusal, target, location))
        return found or mapping_remedy(target, location, value)
    return value_remedy(name, kind, value)


def _own_check_problem(document: YamlDocument, path: Path, error: str, values: Any) -> Problem:
    """What a value's own check says, at the key that it names first, if it names one.

    Of several keys that it names, the one that was set on the command line is the cause.
    """
    every = named_in(error, values)
    said = (n for n in every if was_set(document, path, (*path, *n)))
    named = next(said, named_first(error, values))
    at_key = isinstance(values, dict) and not named
    message = f"{path_text(path) or 'the file'}: {error}"
    return problem_at(document, (*path, *named), message, at_key=at_key)


def was_set(document: YamlDocument, path: Path, place: Path) -> bool:
    """Whether `place`, below `path`, was set on the command line, and not all of `path`."""
    lengths = range(len(path) + 1, len(place) + 1)
    return any(place[:length] in document.sources for length in lengths)


def _merge(problems: list[Problem]) -> list[Problem]:
    """One problem a place: branches of a union that all failed are one complaint."""
    merged: dict[tuple[str, int, int, str], Problem] = {}
    for problem in problems:
        start, _, rest = problem.message.partition(": expected ")
        key = (problem.file, problem.line, problem.column, start)
        first = merged.get(key)
        if first is not None and rest and ": expected " in first.message:
            wanted = rest.split(", found")[0]
            head, _, found = first.message.partition(", found")
            message = f"{head} or {wanted}, found{found}"
            merged[key] = dataclasses.replace(first, message=message)
        else:
            merged.setdefault(key, problem)
    return list(merged.values())
