"""Names of the stages of a matrix, and the shell variables with its values. PURE."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.spec.value_types import is_name

Combination = Mapping[str, Any]
"""Value by axis."""


def combination_names(
    stage: str, combinations: Sequence[Combination], stages: Mapping[str, Any]
) -> list[str]:
    """Return names made of the values; use the number if that is no valid or unique name."""
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
    """Return the file's name of the stage that became `name`; empty without a matrix."""
    if not is_member({"matrix": matrix}):
        return ""
    suffix = "-" + _slug(matrix[0])
    return name.removesuffix(suffix) if name.endswith(suffix) else name.rpartition("-")[0]


def is_member(stage: Mapping[str, Any]) -> bool:
    """Check whether the raw values are those of one combination."""
    matrix = stage.get("matrix")
    return isinstance(matrix, list) and len(matrix) == 1 and isinstance(matrix[0], dict)


def axis_variable(axis: str) -> str:
    """Return the environment variable that holds the value of an axis."""
    return f"SLURM_JOBS_MATRIX_{axis.upper()}"


def matrix_variables(matrix: Any) -> dict[str, str]:
    """Return the variables of a stage that is one combination; none for any other."""
    combination = matrix[0] if is_member({"matrix": matrix}) else {}
    return {axis_variable(axis): value_text(value) for axis, value in combination.items()}


def value_text(value: Any) -> str:
    """Return a value as text: unchanged, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _slug(combination: Combination) -> str:
    return "-".join(_slug_of(value) for value in combination.values())


def _slug_of(value: Any) -> str:
    text = format(value, "g") if isinstance(value, float) else value_text(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
