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
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.spec.matrices.matrix_forms import wrong_axes, wrong_form
from slurm_jobs.spec.matrices.matrix_names import Combination, combination_names, value_text
from slurm_jobs.spec.matrices.matrix_places import StagePlaces, kinds_by_parent
from slurm_jobs.spec.plain_text import shortened
from slurm_jobs.spec.remedies.flow_text import flow_text
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

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


def _problem(document: YamlDocument, stage: str, message: str, below: Path = ()) -> Problem:
    path: Path = ("stages", stage, "matrix", *below)
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
