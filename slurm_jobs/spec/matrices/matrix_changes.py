"""Detection of overrides that change a stage's matrix after the expansion. PURE.

Such a matrix would not be expanded: the stage would run once, as if it had none.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from slurm_jobs.spec.validation import problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument


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
            path: Path = ("stages", name, "matrix")
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
