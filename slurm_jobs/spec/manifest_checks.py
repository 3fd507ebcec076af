"""Whether the manifests that a spec names hold any row; what rows say is left to the job. PURE."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_MANIFESTS: dict[Path, str] = {
    ("config", "manifest"): "preprocess",
    ("config", "evaluate", "manifest"): "evaluate on",
}
"""Where a built-in stage names a manifest, and what it is to do with the rows."""


def manifest_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    small_text: Callable[[str], str | None],
) -> list[Problem]:
    """The manifests without a row, each at its line; one of more than a few lines is not read."""
    problems = []
    for item in marked:
        verb = _MANIFESTS.get(item.path[2:])
        text = small_text(item.resolved) if verb else None
        if text is not None and _is_empty(text, is_csv=item.resolved.lower().endswith(".csv")):
            message = (
                f"{path_text(item.path)}: {item.resolved} has no rows; there is nothing to {verb}"
            )
            problems.append(problem_at(document, item.path, message))
    return problems


def _is_empty(text: str, *, is_csv: bool) -> bool:
    """Blank, a CSV that ends with the line that names its columns, or an empty JSON list."""
    if is_csv:
        try:
            return sum(1 for record in csv.reader(io.StringIO(text, newline="")) if record) < 2
        except csv.Error:
            return False
    return "".join(text.split()) in {"", "[]"}
