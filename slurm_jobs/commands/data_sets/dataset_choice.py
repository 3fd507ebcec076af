"""Data sets that a user selects, and their problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.commands.data_sets.stage_python import (
    OnProgress,
    StagePython,
    call_entry_point,
    own_python,
    stage_python,
)
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.formats.dataset_folder import INDEX_NAME, INFO_NAME, SHARDS_DIR
from slurm_jobs.run_folder.cleanings import removed_of
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_plan_values
from slurm_jobs.run_folder.run_values import stages_called

TRAIN_RUN, CONSOLIDATE_RUN = "train", "consolidate"
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
class VerifyResult:
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

    A folder may be the output of a run's stage. `stage` picks those of one stage, or of one
    combination of a matrix.

    Raises:
        InputError: there is no such folder, run or stage.
    """
    folder = named_dataset(text)
    if folder is not None:
        paths = RunPaths(folder.parent.parent)
        places = _places_in(paths).values() if paths.run_json.is_file() else ()
        return [place for place in places if place.folder == folder] or [
            DatasetPlace(folder=folder)
        ]
    paths = RunPaths(find_run(text))
    by_stage = _places_in(paths)
    if not by_stage:
        message = f"{paths.run_dir}: no stage of it runs `{CONSOLIDATE_RUN}`, so it has no data set"
        raise InputError(message)
    if stage is None:
        return list(by_stage.values())
    origins = {v["name"]: v.get("origin", "") for v in read_plan_values(paths)["stages"]}
    names = [name for name in stages_called(stage, origins) if name in by_stage]
    if not names:
        message = f"--stage {stage}: no data set of that name (there are: {', '.join(by_stage)})"
        raise InputError(message)
    return [by_stage[name] for name in names]


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
        if values["run"] == CONSOLIDATE_RUN
    }


def verify(
    place: DatasetPlace,
    *,
    python: str | None,
    num_threads: int | None,
    command_text: Callable[..., str],
    on_progress: OnProgress,
) -> VerifyResult:
    """Compare a data set with its index and checksums, in the Python of the stage that made it.

    Raises:
        InputError, FileError: see `call_entry_point`.
    """
    result = call_entry_point(
        "pipeline.tools.verify:run",
        {
            "folder": str(place.folder),
            "num_threads": num_threads or num_read_threads(),
            "num_tasks": place.num_tasks,
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    remedy, effect = "", ""
    if result["problems"] and place.paths is None:
        remedy = (
            "verify the data set where it was made, and copy these files again; remove those that "
            "do not belong to it"
        )
    elif place.paths is not None and result["problems"] and result["is_unfinished"]:
        if any(each.stage == place.stage for each in removed_of(place.paths)):
            remedy = command_text("resume", str(place.paths.run_dir), "--again", place.stage)
            effect = "makes it again, because `clean` removed it, and all that comes after it"
        else:
            remedy = command_text("resume", str(place.paths.run_dir))
            effect = "runs what is missing"
    elif result["problems"] and not result["slices"]:
        remedy = "remove the files that do not belong to the data set; no stage has to run again"
    elif place.paths is not None and result["problems"]:
        again = place.stage
        if len(result["slices"]) < place.num_tasks:
            again += f":{ranges_text(result['slices'])}"
        remedy = command_text("resume", str(place.paths.run_dir), "--again", again)
        effect = "writes these files again from the parts; what comes after runs again"
    names = ("num_shards", "num_samples", "num_bytes")
    return VerifyResult(
        place=place,
        problems=tuple(result["problems"]),
        remedy=remedy,
        effect=effect,
        counts={name: result[name] for name in names if name in result},
    )


def num_read_threads() -> int:
    """Return the default number of threads that read a data set."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def python_of(place: DatasetPlace, given: str | None) -> StagePython:
    """Return the given Python, else the one of the stage that made the data set."""
    if given is not None or place.paths is None:
        return own_python(given)
    return stage_python(place.paths, place.stage)
