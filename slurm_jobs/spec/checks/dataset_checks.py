"""Check that the data sets of a training are finished folders with their shards. PURE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from slurm_jobs.common.dataset_names import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.common.errors import Problem
from slurm_jobs.common.processors.files import changed_files, changed_processor
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_WITHIN = frozenset({INFO_NAME, INDEX_NAME, PROCESSOR_DIR, SHARDS_DIR})
"""Entries of a data set folder that users name instead of the folder."""


def dataset_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the folders that are no data set, at their lines; skip outputs of this spec."""
    problems = []
    for item in marked:
        if not _is_dataset(item.path) or not item.given or not files.holds(item.resolved):
            continue
        wrong = (
            f" is no finished data set, it has no {INFO_NAME}; {_instead(item.resolved, files)}"
            if files.lacks(f"{item.resolved}/{INFO_NAME}")
            else _wrong_shards(item.resolved, files) or _wrong_processor(item.resolved, files)
        )
        if wrong:
            message = f"{path_text(item.path)}: {item.resolved}{wrong}"
            problems.append(problem_at(document, item.path, message))
    return problems


def _wrong_shards(folder: str, files: Files) -> str:
    """Return the first missing or wrong shard, and their number; shards are not read.

    If `dataset.json` cannot be understood, the check is left to the job.
    """
    expected, found = _shards_of(folder, files), files.sizes_in(f"{folder}/{SHARDS_DIR}")
    if found is None:
        return ""
    wrong = [name for name, size in expected.items() if found.get(name, -1) not in {None, size}]
    if not wrong:
        return ""
    first, size = wrong[0], found.get(wrong[0], -1)
    told = "is missing" if size == -1 else f"has {size} bytes, expected {expected[first]}"
    return (
        f": {len(wrong)} of {len(expected)} shards missing or of another size than {INFO_NAME} "
        f"says; the first, {SHARDS_DIR}/{first}, {told}; `slurm-jobs verify {folder}` names all "
        "and what to do"
    )


def _wrong_processor(folder: str, files: Files) -> str:
    """Return the processor files that were changed since the data set was written."""
    expected = files.json_values(f"{folder}/{INFO_NAME}").get("processor_sha256")
    checksums = files.checksums_in(f"{folder}/{PROCESSOR_DIR}")
    if not isinstance(expected, dict) or not checksums:
        return ""
    changes = changed_files(expected, checksums)
    return f": {changed_processor(PurePosixPath(PROCESSOR_DIR), changes)}" if changes else ""


def _shards_of(folder: str, files: Files) -> dict[str, int]:
    """Return the size of each shard that a data set should have, by name."""
    try:
        values = json.loads(files.read_text(f"{folder}/{INFO_NAME}"))
        return {shard["name"]: shard["num_bytes"] for shard in values["shards"]}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _is_dataset(path: Path) -> bool:
    """Check for the key of a training's data set, or of a phase's."""
    below = path[2:]
    return below[:1] == ("config",) and below[-1:] == ("dataset",)


def _instead(folder: str, files: Files) -> str:
    """Return the alternative to a folder that is no data set."""
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
