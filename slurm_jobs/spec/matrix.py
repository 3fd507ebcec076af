"""Expansion of a `matrix:`: a stage, or a chain of stages, for each combination. PURE.

The raw values are expanded before any check: each combination becomes its own stage
(`train-cardio-2`), with every `${matrix.AXIS}` replaced. So all later code (checks, plan, records,
status, resume) sees only stages. Stages that share a matrix follow each other combination by
combination; any other stage comes after all combinations.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.shared.errors import Problem, did_you_mean
from slurm_jobs.shared.redact import describe, shortened
from slurm_jobs.spec.hints import list_remedy
from slurm_jobs.spec.model import MAX_STAGES, axis_variable, check_axis, is_name, slug, value_text
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, flow_text, path_text, problem_at

Combination = Mapping[str, Any]
"""Value by axis."""


def combination_names(
    stage: str, combinations: Sequence[Combination], stages: Mapping[str, Any]
) -> list[str]:
    """Return names made of the values; use the number if that is no valid or unique name."""
    names: list[str] = []
    for number, combination in enumerate(combinations, start=1):
        name = f"{stage}-{slug(combination)}"
        numbered = (f"{stage}-{n}" for n in itertools.count(number))
        taken = {*names, *stages}
        if not is_name(name) or name in taken:
            name = next(other for other in numbered if other not in taken)
        names.append(name)
    return names


# Checks of a `matrix:` before it is expanded.


_FORMS = (
    "expected values by axis ({lr: [1e-4, 3e-4]}), a list that says each combination "
    "([{lr: 1e-4, nodes: 1}]), or the name of a stage whose matrix is shared"
)
_EQUAL_VARIABLES = "two axes differ in small and capital letters alone"


def wrong_axes(document: YamlDocument, stage: str, matrix: Any) -> list[Problem]:
    """Return invalid names of axes, each once, at its first place."""
    holders = enumerate(matrix) if isinstance(matrix, list) else [(None, matrix)]
    found: dict[str, Problem] = {}
    for place, holder in holders:
        for axis in holder if isinstance(holder, dict) else ():
            try:
                check_axis(axis)
            except ValueError as error:
                path: KeyPath = ("stages", stage, "matrix", *(() if place is None else (place,)))
                message = f"stages.{stage}.matrix: {error}"
                problem = problem_at(document, (*path, axis), message, at_key=True)
                found.setdefault(axis, problem)
    return list(found.values())


def wrong_form(matrix: Any) -> tuple[KeyPath, str]:
    """Return what is wrong with a matrix, and its place below the matrix; empty if nothing is."""
    if matrix is None:
        return (), ""
    if isinstance(matrix, dict):
        for axis, values in matrix.items():
            if not isinstance(values, list) or not values:
                remedy = "" if values in ({}, []) else list_remedy(axis, values, lambda _list: None)
                return (axis,), f"expected a list of values, found {describe(values)}{remedy}"
        if _has_equal_variables(matrix):
            return (), _EQUAL_VARIABLES
        if math.prod(len(values) for values in matrix.values()) > MAX_STAGES:
            return (), f"more than {MAX_STAGES} combinations"
        return (), "" if matrix else _FORMS
    is_list = isinstance(matrix, list) and all(isinstance(one, dict) and one for one in matrix)
    if is_list and any(_has_equal_variables(one) for one in matrix):
        return (), _EQUAL_VARIABLES
    return (), "" if is_list and matrix else _FORMS


def _has_equal_variables(axes: Iterable[str]) -> bool:
    variables = [axis_variable(axis) for axis in axes]
    return len(set(variables)) < len(variables)


# Places in the file of stages that were made from one stage.


def kinds_by_parent(after: Any) -> dict[str, Any]:
    """Return kinds by parent, for every form of `after`; empty for an invalid form."""
    return {parent: kind for parent, (kind, _) in _parents(after).items()}


def _parents(after: Any) -> dict[str, tuple[Any, KeyPath]]:
    """Return the kind of each parent, and its place below the stage."""
    if isinstance(after, str):
        return {after: ("afterok", ("after",))}
    if isinstance(after, list) and all(isinstance(parent, str) for parent in after):
        return {parent: ("afterok", ("after", number)) for number, parent in enumerate(after)}
    if isinstance(after, dict):
        return {parent: (kind, ("after", parent)) for parent, kind in after.items()}
    return {}


class StagePlaces:
    """Collector of the places in a document whose stages get other names."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        tables: dict[str, Mapping[KeyPath, Any]] = {
            "key_places": document.key_places,
            "value_places": document.value_places,
            "sources": document.sources,
            "tagged": dict.fromkeys(document.tagged),
        }
        self._given: dict[str, dict[str, dict[KeyPath, Any]]] = {table: {} for table in tables}
        self._found: dict[str, dict[KeyPath, Any]] = {}
        for table, places in tables.items():
            self._found[table] = {p: v for p, v in places.items() if not _is_of_a_stage(p)}
            for path, value in places.items():
                if _is_of_a_stage(path):
                    below = self._given[table].setdefault(str(path[1]), {})
                    below[path[2:]] = value

    def copy(self, name: str, member: str) -> None:
        """Copy the places of `member` for the stage `name`."""
        for table, found in self._found.items():
            for below, value in self._given[table].get(name, {}).items():
                place = ("stages", member, *below)
                found[place] = value

    def copy_parents(self, name: str, member: str, renamed: Mapping[str, Sequence[str]]) -> None:
        """Copy the place of each parent of `member` from its original parent in `name`."""
        stages = self._document.value["stages"]
        stage = stages[name] if isinstance(stages[name], dict) else {}
        for parent, (_, below) in _parents(stage.get("after")).items():
            for new in renamed.get(parent, ()):
                for table in ("key_places", "value_places"):
                    given = self._given[table].get(name, {})
                    if below in given:
                        self._found[table]["stages", member, "after", new] = given[below]

    def found(self) -> dict[str, Any]:
        """Return the collected places, by the document's own names."""
        return {**self._found, "tagged": frozenset(self._found["tagged"])}


def _is_of_a_stage(path: KeyPath) -> bool:
    return len(path) > 1 and path[0] == "stages"


AXIS_REFERENCE = re.compile(r"\$\{matrix\.([A-Za-z0-9_]+)\}")
_UNTOUCHED = frozenset({"shell", "setup", "after", "matrix"})
"""Keys of a stage in which nothing is replaced: a shell has variables, and `after` names stages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Family:
    """Stages that one stage with a matrix becomes."""

    root: str
    """Stage that has the `matrix:` itself."""
    combinations: Sequence[Combination]
    names: Sequence[str]
    """Names of the stages, one for each combination."""


def expand_matrix(document: YamlDocument) -> tuple[YamlDocument, Mapping[str, str]]:
    """Return the document with a stage for each combination, and each one's name in the file.

    Problems of a matrix are added to the document; such a stage stays unchanged.
    """
    stages = document.value.get("stages") if isinstance(document.value, dict) else None
    if not isinstance(stages, dict) or not any(_matrix_of(stage) for stage in stages.values()):
        return document, {}
    families, problems = _families(document, stages)
    expanded: dict[str, Any] = {}
    places = StagePlaces(document)
    for name, stage in stages.items():
        family = families.get(name)
        members = (name,) if family is None else family.names
        for number, member in enumerate(members):
            chosen = (
                _without_matrix(stage)
                if family is None
                else _replaced(stage, family.combinations[number])
            )
            expanded[member] = _with_parents(name, chosen, families, number)
            places.copy(name, member)
            places.copy_parents(name, member, {p: f.names for p, f in families.items()})
    changed = dataclasses.replace(
        document,
        value={**document.value, "stages": expanded},
        **places.found(),
        problems=(*document.problems, *problems),
    )
    return changed, {member: name for name, f in families.items() for member in f.names}


def as_in_the_file(
    problems: Iterable[Problem], document: YamlDocument, origins: Mapping[str, str]
) -> list[Problem]:
    """Return problems with the stages' names of the file, each mistake once.

    References that are invalid only because a matrix is wrong are left out.
    """
    wrong = {p for p in document.problems if ".matrix" in p.message}
    told = [p for p in problems if not wrong or p in wrong or "${" not in p.message]
    return list(dict.fromkeys(_renamed_problem(p, origins) for p in told))


def _renamed_problem(problem: Problem, origins: Mapping[str, str]) -> Problem:
    """Return the problem with the file's name in its path and in the stage that it is about.

    Names in lists stay, because those are the allowed values.
    """

    def of_the_file(match: re.Match[str]) -> str:
        return match[1] + origins.get(match[2], match[2])

    message = re.sub(r"(^stages\.|`stages\.)([\w-]+)", of_the_file, problem.message)
    if "there is no stage" not in message:
        message = re.sub(r"(\bstage `)([\w-]+)", of_the_file, message)
    return dataclasses.replace(problem, message=message)


def _matrix_of(stage: Any) -> Any:
    return stage.get("matrix") if isinstance(stage, dict) else None


def _families(
    document: YamlDocument, stages: Mapping[str, Any]
) -> tuple[dict[str, _Family], list[Problem]]:
    own: dict[str, _Family] = {}
    shared: dict[str, str] = {}
    wrong: set[str] = set()
    problems = []
    for name, stage in stages.items():
        matrix = _matrix_of(stage)
        if isinstance(matrix, str):
            shared[name] = matrix
            continue
        below, message = wrong_form(matrix)
        axes = wrong_axes(document, name, matrix)
        if message or axes:
            wrong.add(name)
            problems += axes or [_problem(document, name, message, below)]
        elif matrix:
            combinations = _combinations(matrix)
            names = combination_names(name, combinations, stages)
            own[name] = _Family(root=name, combinations=combinations, names=names)
    families = dict(own)
    for name, root in shared.items():
        if root in own:
            names = combination_names(name, own[root].combinations, stages)
            families[name] = dataclasses.replace(own[root], names=names)
        if root in own or root in wrong:
            continue
        message = (
            f"`{root}` is no stage with its own matrix{did_you_mean(root, own)} "
            f"(those: {', '.join(own) or 'none'})"
        )
        problems.append(_problem(document, name, message))
    return families, [*problems, *_taken_twice(document, families)]


def _problem(document: YamlDocument, stage: str, message: str, below: KeyPath = ()) -> Problem:
    path: KeyPath = ("stages", stage, "matrix", *below)
    return problem_at(document, path, f"{path_text(path)}: {message}")


def _combinations(matrix: Any) -> Sequence[Combination]:
    if isinstance(matrix, list):
        return matrix
    return [
        dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
    ]


def _taken_twice(document: YamlDocument, families: Mapping[str, _Family]) -> list[Problem]:
    """Return combinations of two stages with the same name, one of which would be lost."""
    taken: dict[str, str] = {}
    problems = []
    for name, family in families.items():
        for member, combination in zip(family.names, family.combinations, strict=True):
            first = taken.setdefault(member, name)
            if first != name:
                message = (
                    f"the combination {shortened(flow_text(dict(combination)))} would be called "
                    f"`{member}`, as one of stage `{first}` is; rename one of the two stages"
                )
                problems.append(_problem(document, name, message))
    return problems


def _replaced(stage: Mapping[str, Any], combination: Combination) -> dict[str, Any]:
    """Return the stage of one combination; its `matrix` holds only that."""
    texts = {axis: value_text(value) for axis, value in combination.items()}
    replaced = {
        key: value
        if key in _UNTOUCHED
        else _filled(value, texts if key == "environment" else combination)
        for key, value in stage.items()
    }
    return {**replaced, "matrix": [dict(combination)]}


def _without_matrix(stage: Any) -> Any:
    """Return a stage without its matrix if that is wrong and already reported."""
    return {k: v for k, v in stage.items() if k != "matrix"} if isinstance(stage, dict) else stage


def _filled(value: Any, combination: Combination) -> Any:
    """Return `value` with axis references replaced; a whole string becomes the value itself."""
    if isinstance(value, str):
        whole = AXIS_REFERENCE.fullmatch(value)
        if whole is not None and whole[1] in combination:
            return copy.deepcopy(combination[whole[1]])
        return AXIS_REFERENCE.sub(
            lambda match: value_text(combination.get(match[1], match[0])), value
        )
    if isinstance(value, dict):
        return {key: _filled(item, combination) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, combination) for item in value]
    return value


def _with_parents(name: str, stage: Any, families: Mapping[str, _Family], number: int) -> Any:
    """Return the stage with its parents' new names, and those of its references to them."""
    if not isinstance(stage, dict):
        return stage
    own = families.get(name)
    renamed: dict[str, Sequence[str]] = {}
    for parent, family in families.items():
        is_pair = own is not None and own.root == family.root
        renamed[parent] = [family.names[number]] if is_pair else family.names
    changed = dict(stage)
    parents = kinds_by_parent(stage.get("after"))
    if not renamed.keys().isdisjoint(parents):
        changed["after"] = {
            new: kind for parent, kind in parents.items() for new in renamed.get(parent, [parent])
        }
    if "config" in stage:
        single = {parent: names[0] for parent, names in renamed.items() if len(names) == 1}
        changed["config"] = _renamed(stage["config"], single)
    return changed


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename references to stages (`${train.output_dir}`)."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(f"${{{old}.output_dir}}", f"${{{new}.output_dir}}")
        return value
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value


# Detection of overrides that change a stage's matrix after the expansion.
#
# Such a matrix would not be expanded: the stage would run once, as if it had none.


def with_changed_matrices(
    before: YamlDocument, after: YamlDocument, said: Callable[[str], str]
) -> YamlDocument:
    """Return `after` with a problem for each stage whose matrix differs from that in `before`.

    Args:
        before: the expanded document.
        after: the same with overrides.
        said: message with remedy, for the name of a stage.
    """
    known, now = _matrices(before), _matrices(after)
    problems = []
    for name, matrix in now.items():
        if matrix != known.get(name, "null"):
            path: KeyPath = ("stages", name, "matrix")
            problems.append(problem_at(after, path, f"stages.{name}.matrix: {said(name)}"))
    return dataclasses.replace(after, problems=(*after.problems, *problems))


def _matrices(document: YamlDocument) -> dict[str, str]:
    """Return the matrix of each stage as JSON, in which 1, true and 1.0 differ."""
    stages: Any = document.value.get("stages") if isinstance(document.value, dict) else None
    return {
        name: json.dumps(stage.get("matrix"), sort_keys=True)
        for name, stage in (stages.items() if isinstance(stages, dict) else ())
        if isinstance(stage, dict)
    }
