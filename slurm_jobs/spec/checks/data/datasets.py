"""Check that the data sets of a training are finished folders with their shards. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.dataset_folder import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.formats.processors.processor_files import changed_files, changed_processor
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.spec_files import Files

_WITHIN = frozenset({INFO_NAME, INDEX_NAME, PROCESSOR_DIR, SHARDS_DIR})
"""Entries of a data set folder that users name instead of the folder."""


def dataset_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the folders that are not a data set, at their lines; skip outputs of this spec."""
    for item in spec.expanded:
        is_dataset = item.path[2:3] == ("config",) and item.path[-1:] == ("dataset",)
        folder = item.resolved
        if is_dataset and item.given and spec.files.holds(folder):
            info = spec.files.json_values(f"{folder}/{INFO_NAME}")
            wrong = _wrong_shards(folder, info, spec.files)
            wrong = wrong or _wrong_processor(folder, info, spec.files)
            if spec.files.lacks(f"{folder}/{INFO_NAME}"):
                remedy = _remedy(folder, spec.files)
                wrong = f" is not a finished data set: it has no {INFO_NAME}; {remedy}"
            if wrong:
                yield spec.problem(item.path, f"{folder}{wrong}")


def _wrong_shards(folder: str, info: Mapping[str, Any], files: Files) -> str | None:
    """Return the first missing or wrong shard, and their number; shards are not read.

    If `dataset.json` cannot be understood, the check is left to the job.
    """
    sizes = files.sizes_in(f"{folder}/{SHARDS_DIR}")
    try:
        expected = {shard["name"]: shard["num_bytes"] for shard in info["shards"]}
    except (LookupError, TypeError):
        return None
    if sizes is None:
        return None
    wrong = [name for name, size in expected.items() if sizes.get(name, -1) not in (None, size)]
    if not wrong:
        return None
    first, size = wrong[0], sizes.get(wrong[0], -1)
    difference = "is missing" if size == -1 else f"has {size} bytes, expected {expected[first]}"
    return (
        f": {len(wrong)} of {len(expected)} shards missing or of another size than {INFO_NAME} "
        f"says; the first, {SHARDS_DIR}/{first}, {difference}; `slurm-jobs verify {folder}` names "
        "all and what to do"
    )


def _wrong_processor(folder: str, info: Mapping[str, Any], files: Files) -> str | None:
    """Return the processor files that were changed since the data set was written."""
    expected = info.get("processor_sha256")
    checksums = files.checksums_in(f"{folder}/{PROCESSOR_DIR}")
    if not isinstance(expected, dict) or not checksums:
        return None
    changes = changed_files(expected, checksums)
    return f": {changed_processor(PurePosixPath(PROCESSOR_DIR), changes)}" if changes else None


def _remedy(folder: str, files: Files) -> str:
    """Return what to give instead of a folder that is not a data set."""
    path = PurePosixPath(folder)
    if path.name in _WITHIN and files.holds(f"{path.parent}/{INFO_NAME}"):
        return f"give {path.parent}"
    dataset = f"{folder}/data/consolidate"
    if files.holds(f"{dataset}/{INFO_NAME}"):
        return f"it is a run: give {dataset}"
    return (
        "give the folder that `consolidate` wrote (data/STAGE of a run); one that a stage of this "
        "spec makes is named `${STAGE.output_dir}`"
    )
