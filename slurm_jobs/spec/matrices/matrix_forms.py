"""Checks of a `matrix:` before it is expanded. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.matrices.matrix_names import axis_variable
from slurm_jobs.spec.model import MAX_STAGES
from slurm_jobs.spec.plain_text import describe
from slurm_jobs.spec.remedies.list_remedies import list_remedy
from slurm_jobs.spec.validation import problem_at
from slurm_jobs.spec.value_types import check_axis
from slurm_jobs.spec.yaml_values import Path, YamlDocument

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
                path: Path = ("stages", stage, "matrix", *(() if place is None else (place,)))
                message = f"stages.{stage}.matrix: {error}"
                problem = problem_at(document, (*path, axis), message, at_key=True)
                found.setdefault(axis, problem)
    return list(found.values())


def wrong_form(matrix: Any) -> tuple[Path, str]:
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
