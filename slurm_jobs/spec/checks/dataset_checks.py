"""Whether folders that a training names as data sets are finished ones; none is read. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from slurm_jobs.common.dataset_names import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_WITHIN = frozenset({INFO_NAME, INDEX_NAME, PROCESSOR_DIR, SHARDS_DIR})
"""What lies in the folder of a data set, and may be named in its place."""


def dataset_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """The folders that are no data set, each at its line; what a stage will make is left alone."""
    problems = []
    for item in marked:
        if not _is_dataset(item.path) or not item.given or not files.holds(item.resolved):
            continue
        if not files.lacks(f"{item.resolved}/{INFO_NAME}"):
            continue
        message = (
            f"{path_text(item.path)}: {item.resolved} is no finished data set, it has no "
            f"{INFO_NAME}; {_instead(item.resolved, files)}"
        )
        problems.append(problem_at(document, item.path, message))
    return problems


def _is_dataset(path: Path) -> bool:
    """Of a training, or of one of its phases."""
    below = path[2:]
    return below[:1] == ("config",) and below[-1:] == ("dataset",)


def _instead(folder: str, files: Files) -> str:
    """What to give in the place of what is none."""
    path = PurePosixPath(folder)
    if path.name in _WITHIN and files.holds(f"{path.parent}/{INFO_NAME}"):
        return f"give {path.parent}"
    made = f"{folder}/data/consolidate"
    if files.holds(f"{made}/{INFO_NAME}"):
        return f"it is a run: give {made}"
    return (
        "give the folder that `consolidate` wrote (data/STAGE of a run); one that a stage of this "
        "spec makes is named `${STAGE.output_dir}`"
    )
