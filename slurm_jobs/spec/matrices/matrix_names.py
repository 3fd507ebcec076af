"""What the stages that a matrix makes are called, and the variables that tell a shell. PURE."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.spec.value_types import is_name

Combination = Mapping[str, Any]
"""A value by axis."""


def combination_names(
    stage: str, combinations: Sequence[Combination], stages: Mapping[str, Any]
) -> list[str]:
    """Names made of the values; with its number instead where that is no name, or is taken."""
    names: list[str] = []
    for number, combination in enumerate(combinations, start=1):
        name = f"{stage}-{_slug(combination)}"
        numbered = (f"{stage}-{n}" for n in itertools.count(number))
        taken = {*names, *stages}
        if not is_name(name) or name in taken:
            name = next(other for other in numbered if other not in taken)
        names.append(name)
    return names


def origin_of(name: str, matrix: Any) -> str:
    """The name in the file of the stage that became `name`; empty for a stage without a matrix."""
    if not is_member({"matrix": matrix}):
        return ""
    suffix = "-" + _slug(matrix[0])
    return name.removesuffix(suffix) if name.endswith(suffix) else name.rpartition("-")[0]


def is_member(stage: Mapping[str, Any]) -> bool:
    """Whether the raw values are those of one combination."""
    matrix = stage.get("matrix")
    return isinstance(matrix, list) and len(matrix) == 1 and isinstance(matrix[0], dict)


def axis_variable(axis: str) -> str:
    """The environment variable that holds the value of an axis."""
    return f"SLURM_JOBS_MATRIX_{axis.upper()}"


def matrix_variables(matrix: Any) -> dict[str, str]:
    """The variables of a stage that is one combination; none for any other."""
    combination = matrix[0] if is_member({"matrix": matrix}) else {}
    return {axis_variable(axis): value_text(value) for axis, value in combination.items()}


def value_text(value: Any) -> str:
    """A value as text: as it is, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _slug(combination: Combination) -> str:
    return "-".join(_slug_of(value) for value in combination.values())


def _slug_of(value: Any) -> str:
    text = format(value, "g") if isinstance(value, float) else value_text(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
