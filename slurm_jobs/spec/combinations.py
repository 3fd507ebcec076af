"""Combinations of a `matrix:` as stages: their names, and their shell variables. PURE."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def origin_of(name: str, matrix: Any) -> str:
    """Return the file's name of the stage that became `name`; empty without a matrix."""
    if not is_member({"matrix": matrix}):
        return ""
    suffix = "-" + slug(matrix[0])
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


def slug(combination: Mapping[str, Any]) -> str:
    """Return the values of a combination as a part of a stage's name."""
    texts = (
        format(v, "g") if isinstance(v, float) else value_text(v) for v in combination.values()
    )
    return "-".join(re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") for text in texts)
