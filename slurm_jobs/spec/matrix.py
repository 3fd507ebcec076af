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
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.written_values import describe, shortened
from slurm_jobs.spec.combinations import axis_variable, slug, value_text
from slurm_jobs.spec.hints.list_remedies import list_remedy
from slurm_jobs.spec.model import MAX_STAGES
from slurm_jobs.spec.overrides.apply import lacks_stage
from slurm_jobs.spec.stage_views import parent_places
from slurm_jobs.spec.value_types import check_axis, is_name
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at
from slurm_jobs.spec.yaml.flow_style import flow_text

Combination = Mapping[str, Any]
"""Value by axis."""
_STAGE_IN_PATH = re.compile(r"(^stages\.|`stages\.)([\w-]+)")
_STAGE_IN_WORDS = re.compile(r"(\bstage `)([\w-]+)")
AXIS_REFERENCE = re.compile(r"\$\{matrix\.([A-Za-z0-9_]+)\}")
_UNTOUCHED = frozenset({"shell", "setup", "after", "matrix"})
"""Keys of a stage in which nothing is replaced: a shell has variables, and `after` names stages."""
_FORMS = (
    "expected values by axis ({lr: [1e-4, 3e-4]}), a list that says each combination "
    "([{lr: 1e-4, nodes: 1}]), or the name of a stage whose matrix is shared"
)


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

    Problems of a matrix are added to the document; such a stage stays one, without its `matrix`.
    """
    stages = document.value.get("stages") if isinstance(document.value, dict) else None
    if not isinstance(stages, dict) or not any(_matrix_of(stage) for stage in stages.values()):
        return document, {}
    families, problems = _families(document, stages)
    expanded: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, stage in stages.items():
        family = families.get(name)
        for number, member in enumerate(family.names if family else [name]):
            keys = stage
            if family is not None:
                keys = _replaced(stage, family.combinations[number])
            elif isinstance(stage, dict):  # a matrix that is left is wrong, and already reported
                keys = {key: value for key, value in stage.items() if key != "matrix"}
            expanded[member] = _with_parents(name, keys, families, number)
            origins[member] = name
    changed = dataclasses.replace(
        document,
        value={**document.value, "stages": expanded},
        **_moved_places(document, origins, families),
        problems=(*document.problems, *problems),
    )
    return changed, {member: name for member, name in origins.items() if name in families}


def as_in_the_file(
    problems: Iterable[Problem], document: YamlDocument, origins: Mapping[str, str]
) -> list[Problem]:
    """Return problems with the stages' names of the file, each mistake once.

    References that are invalid only because a matrix is wrong are left out.
    """
    has_wrong_matrix = any(_is_of_matrix(problem) for problem in document.problems)
    renamed: dict[Problem, None] = {}
    for problem in problems:
        path = problem.path or ()
        is_unexpanded = has_wrong_matrix and _refers(_value_at(document, path))
        if is_unexpanded and not _is_of_matrix(problem):
            continue
        message = _with_names_of_the_file(problem.message, document, path, origins)
        renamed[problem.changed(message=message, path=None)] = None
    return list(renamed)


def _with_names_of_the_file(
    message: str, document: YamlDocument, path: KeyPath, origins: Mapping[str, str]
) -> str:
    """Replace the names of stages, but not those in lists, which are the allowed values."""

    def of_the_file(match: re.Match[str]) -> str:
        return match[1] + origins.get(match[2], match[2])

    message = _STAGE_IN_PATH.sub(of_the_file, message)
    if lacks_stage(document.value, path):  # the message shows the name as an override has it
        return message
    return _STAGE_IN_WORDS.sub(of_the_file, message)


def _is_of_matrix(problem: Problem) -> bool:
    path = problem.path or ()
    return path[:1] == ("stages",) and path[2:3] == ("matrix",)


def _value_at(document: YamlDocument, path: KeyPath) -> Any:
    """Return the value at a path of the document; None if it has none."""
    value = document.value
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def _refers(value: Any) -> bool:
    """Check whether a text, or one in a list, has a `${...}` that was not replaced."""
    if isinstance(value, list):
        return any(map(_refers, value))
    return isinstance(value, str) and "${" in value


def _matrix_of(stage: Any) -> Any:
    return stage.get("matrix") if isinstance(stage, dict) else None


def _families(
    document: YamlDocument, stages: Mapping[str, Any]
) -> tuple[dict[str, _Family], list[Problem]]:
    """Return the families of the stages that have a valid matrix or share one, and all problems."""
    matrices = {name: _matrix_of(stage) for name, stage in stages.items()}
    roots: dict[str, _Family] = {}
    problems, wrong = [], set()
    for name, matrix in matrices.items():
        if matrix is None or isinstance(matrix, str):
            continue
        of_matrix = [*_wrong_axes(document, name, matrix)] or _wrong_form(document, name, matrix)
        if of_matrix:
            wrong.add(name)
            problems += of_matrix
            continue
        combinations = matrix
        if isinstance(matrix, dict):
            products = itertools.product(*matrix.values())
            combinations = [dict(zip(matrix, values, strict=True)) for values in products]
        names = _names(name, combinations, stages)
        roots[name] = _Family(root=name, combinations=combinations, names=names)
    families = dict(roots)
    for name, matrix in matrices.items():
        if not isinstance(matrix, str) or matrix in wrong:
            continue
        root = roots.get(matrix)
        if root is not None:
            names = _names(name, root.combinations, stages)
            families[name] = dataclasses.replace(root, names=names)
        else:
            message = (
                f"`{matrix}` is not a stage with its own matrix{did_you_mean(matrix, roots)} "
                f"(those: {', '.join(roots) or 'none'})"
            )
            problems.append(_problem(document, name, message))
    return families, [*problems, *_name_clashes(document, families)]


def _name_clashes(document: YamlDocument, families: Mapping[str, _Family]) -> Iterator[Problem]:
    """Yield combinations of two stages that would have one name, so that one would be lost."""
    taken: dict[str, str] = {}
    for name, family in families.items():
        for member, combination in zip(family.names, family.combinations, strict=True):
            first = taken.setdefault(member, name)
            if first != name:
                message = (
                    f"the combination {shortened(flow_text(dict(combination)))} would be called "
                    f"`{member}`, as one of stage `{first}` is; rename one of the two stages"
                )
                yield _problem(document, name, message)


def _problem(document: YamlDocument, stage: str, message: str, *below: str) -> Problem:
    path: KeyPath = ("stages", stage, "matrix", *below)
    return problem_at(document, path, f"{path_text(path)}: {message}")


def _wrong_axes(document: YamlDocument, stage: str, matrix: Any) -> Iterator[Problem]:
    """Yield invalid names of axes, each once, at its first place."""
    path: KeyPath = ("stages", stage, "matrix")
    holders: list[tuple[KeyPath, Any]] = [(path, matrix)]
    if isinstance(matrix, list):
        holders = [((*path, number), each) for number, each in enumerate(matrix)]
    places: dict[str, KeyPath] = {}
    for place, holder in holders:
        for axis in holder if isinstance(holder, dict) else ():
            places.setdefault(axis, (*place, axis))
    for axis, place in places.items():
        try:
            check_axis(axis)
        except ValueError as error:
            yield problem_at(document, place, f"stages.{stage}.matrix: {error}", at_key=True)


def _wrong_form(document: YamlDocument, stage: str, matrix: Any) -> list[Problem]:
    """Return the first problem of a matrix whose axes have valid names; empty without one."""
    if isinstance(matrix, dict):
        for axis, values in matrix.items():
            if not isinstance(values, list) or not values:
                remedy = "" if values in ({}, []) else list_remedy(values, lambda _list: None)
                message = f"expected a list of values, found {describe(values)}{remedy}"
                return [_problem(document, stage, message, axis)]
    is_list = isinstance(matrix, list) and all(isinstance(each, dict) and each for each in matrix)
    if not matrix or not (is_list or isinstance(matrix, dict)):
        return [_problem(document, stage, _FORMS)]
    for axes in matrix if is_list else [matrix]:
        if len({axis_variable(axis) for axis in axes}) < len(axes):
            message = "two axes differ in small and capital letters alone"
            return [_problem(document, stage, message)]
    if not is_list and math.prod(len(values) for values in matrix.values()) > MAX_STAGES:
        return [_problem(document, stage, f"more than {MAX_STAGES} combinations")]
    return []


def _names(stage: str, combinations: Sequence[Combination], stages: Mapping[str, Any]) -> list[str]:
    """Return names made of the values; use the number if that is not a valid, unique name."""
    names: list[str] = []
    for number, combination in enumerate(combinations, start=1):
        name = f"{stage}-{slug(combination)}"
        numbered = (f"{stage}-{n}" for n in itertools.count(number))
        taken = {*names, *stages}
        if not is_name(name) or name in taken:
            name = next(other for other in numbered if other not in taken)
        names.append(name)
    return names


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


def _filled(value: Any, combination: Combination) -> Any:
    """Return `value` with axis references replaced; a whole string becomes the value itself."""

    def filled(text: str) -> Any:
        whole = AXIS_REFERENCE.fullmatch(text)
        if whole is not None and whole[1] in combination:
            return copy.deepcopy(combination[whole[1]])
        return AXIS_REFERENCE.sub(lambda m: value_text(combination.get(m[1], m[0])), text)

    return _mapped(value, filled)


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """Return `value` with each text in it changed."""
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _with_parents(name: str, stage: Any, families: Mapping[str, _Family], number: int) -> Any:
    """Return the stage with its parents' new names, and those of its references to them.

    Of a parent with the same matrix only the combination of this `number` is its parent.
    """
    if not isinstance(stage, dict):
        return stage
    family_of_stage = families.get(name)
    renamed: dict[str, Sequence[str]] = {}
    for parent, family in families.items():
        is_pair = family_of_stage is not None and family_of_stage.root == family.root
        renamed[parent] = [family.names[number]] if is_pair else family.names
    changed, after = dict(stage), stage.get("after")
    kinds = after if isinstance(after, dict) else dict.fromkeys(parent_places(after), "afterok")
    is_wrong = isinstance(after, list) and not all(isinstance(parent, str) for parent in after)
    if not is_wrong and not renamed.keys().isdisjoint(kinds):
        changed["after"] = {
            new: kind for parent, kind in kinds.items() for new in renamed.get(parent, [parent])
        }
    if "config" in stage:
        single = {parent: names[0] for parent, names in renamed.items() if len(names) == 1}

        def with_new_names(text: str) -> str:
            for old, new in single.items():
                text = text.replace(f"${{{old}.output_dir}}", f"${{{new}.output_dir}}")
            return text

        changed["config"] = _mapped(stage["config"], with_new_names)
    return changed


def _moved_places(
    document: YamlDocument, origins: Mapping[str, str], families: Mapping[str, _Family]
) -> dict[str, Any]:
    """Return the document's tables of places with the new names of stages and of parents.

    A place below a stage is that of all its combinations. A parent in `after`, whatever its form,
    gives its place to all names that `_with_parents` makes of it.
    """
    stages = document.value["stages"]
    tables: dict[str, Mapping[KeyPath, Any]] = {
        "key_places": document.key_places,
        "value_places": document.value_places,
        "sources": document.sources,
        "refused": dict.fromkeys(document.refused),
    }
    moved: dict[str, Any] = {}
    for table, values in tables.items():
        places: dict[KeyPath, Any] = {}
        by_stage: dict[Any, dict[KeyPath, Any]] = defaultdict(dict)
        for path, value in values.items():
            if len(path) > 1 and path[0] == "stages":
                by_stage[path[1]][path[2:]] = value
            else:
                places[path] = value
        for member, name in origins.items():
            below = by_stage[name]
            places |= {("stages", member, *path): value for path, value in below.items()}
            after = stages[name].get("after") if isinstance(stages[name], dict) else None
            parents = parent_places(after) if table in {"key_places", "value_places"} else {}
            for parent, place in parents.items():
                if parent in families and place in below:
                    for new in families[parent].names:
                        places["stages", member, "after", new] = below[place]
        moved[table] = places
    return {**moved, "refused": frozenset(moved["refused"])}
