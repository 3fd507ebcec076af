"""Data sets that a user selects, and their problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.common.dataset_names import INDEX_NAME, INFO_NAME, SHARDS_DIR
from slurm_jobs.common.errors import InputError
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.operations.entry_point import (
    OnProgress,
    StagePython,
    call_entry_point,
    own_python,
    stage_python,
)
from slurm_jobs.run.find import find_run
from slurm_jobs.run.model import stages_called
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_plan_values

_RUN = "consolidate"
_MAX_THREADS = 16
"""More threads do not speed up a file server, and most login nodes have no more cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetPlace:
    """Data set, and the stage that made it."""

    folder: Path
    paths: RunPaths | None = None
    """Run that made it; None for a folder elsewhere."""
    stage: str = ""
    """Stage of that run."""
    num_tasks: int = 1
    """Number of array tasks of that stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Result of a verification."""

    place: DatasetPlace
    problems: tuple[Mapping[str, Any], ...]
    """Each with `file`, `message`, and where they apply `shard` and `key`."""
    remedy: str
    """Command to type, or other advice; empty if nothing is wrong."""
    counts: Mapping[str, int]
    """`num_shards`, `num_samples`, `num_bytes`; empty if `dataset.json` cannot be read."""
    effect: str = ""
    """Effect of the command."""


def find_datasets(text: str | None, stage: str | None = None) -> list[DatasetPlace]:
    """Return the data sets of a run, or the one in a folder; see `find_run` for names of runs.

    `stage` picks those of one stage, or of one combination of a matrix.

    Raises:
        InputError: there is no such folder, run or stage.
    """
    folder = named_dataset(text)
    if folder is not None:
        return [_place_of_folder(folder)]
    paths = RunPaths(find_run(text))
    found = _places_in(paths)
    if not found:
        message = f"{paths.run_dir}: no stage of it runs `{_RUN}`, so it has no data set"
        raise InputError(message)
    if stage is None:
        return list(found.values())
    origins = {v["name"]: v.get("origin", "") for v in read_plan_values(paths)["stages"]}
    names = [name for name in stages_called(stage, origins) if name in found]
    if not names:
        message = f"--stage {stage}: no data set of that name (there are: {', '.join(found)})"
        raise InputError(message)
    return [found[name] for name in names]


def named_dataset(text: str | None) -> Path | None:
    """Return the folder of a data set that a user named; None if the text means a run.

    It contains any file of a data set: `dataset.json` may be what is missing.
    """
    path = Path(text) if text else None
    if path is None or RunPaths(path).run_json.is_file():
        return None
    is_one = any((path / name).exists() for name in (INFO_NAME, INDEX_NAME, SHARDS_DIR))
    return path.absolute() if is_one else None


def _places_in(paths: RunPaths) -> dict[str, DatasetPlace]:
    """Return the data sets of a run by stage."""
    return {
        values["name"]: DatasetPlace(
            folder=paths.output_dir(values["name"]),
            paths=paths,
            stage=values["name"],
            num_tasks=values["num_slices"],
        )
        for values in read_plan_values(paths)["stages"]
        if values["run"] == _RUN
    }


def _place_of_folder(folder: Path) -> DatasetPlace:
    """Return the folder as the output of a run's stage, if it is one."""
    paths = RunPaths(folder.parent.parent)
    if paths.run_json.is_file():
        for place in _places_in(paths).values():
            if place.folder == folder:
                return place
    return DatasetPlace(folder=folder)


def verify(
    place: DatasetPlace,
    *,
    python: str | None,
    num_threads: int | None,
    command_text: Callable[..., str],
    on_progress: OnProgress,
) -> Verdict:
    """Compare a data set with its index and checksums, in the Python of the stage that made it.

    Raises:
        InputError, FileError: see `call_entry_point`.
    """
    found = call_entry_point(
        "pipeline.verify:run",
        {
            "folder": str(place.folder),
            "num_threads": num_threads or num_read_threads(),
            "num_tasks": place.num_tasks,
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    counts = {
        name: found[name] for name in ("num_shards", "num_samples", "num_bytes") if name in found
    }
    remedy, effect = _remedy(place, found, command_text) if found["problems"] else ("", "")
    return Verdict(
        place=place,
        problems=tuple(found["problems"]),
        remedy=remedy,
        effect=effect,
        counts=counts,
    )


def num_read_threads() -> int:
    """Return the default number of threads that read a data set."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def python_of(place: DatasetPlace, given: str | None) -> StagePython:
    """Return the given Python, else the one of the stage that made the data set."""
    if given is not None or place.paths is None:
        return own_python(given)
    return stage_python(place.paths, place.stage)


def _remedy(
    place: DatasetPlace, found: Mapping[str, Any], command_text: Callable[..., str]
) -> tuple[str, str]:
    """Return what to do, a command if possible, and what the command does."""
    if place.paths is None:
        told = (
            "copy these files again from where the data set was made, after it was verified there; "
            "what is no file of it can be removed"
        )
        return told, ""
    run_dir = str(place.paths.run_dir)
    if found["is_unfinished"]:
        return command_text("resume", run_dir), "runs what is missing"
    if not found["slices"]:
        return (
            "remove what is no file of the data set; no stage does, and none has to run again",
            "",
        )
    again = place.stage
    if len(found["slices"]) < place.num_tasks:
        again += f":{ranges_text(found['slices'])}"
    command = command_text("resume", run_dir, "--again", again)
    return command, "writes these files again from the parts; what comes after runs again"
