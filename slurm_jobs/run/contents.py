"""Contents of a run folder besides its records, by kind, for `clean`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.files import damaged, names_in, read_json
from slurm_jobs.run_folder.cleanings import Kind
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import last_plan_number

_OF_RUN: Mapping[str, Kind] = {"report": "report", "logs": "logs", "timing": "metrics"}
"""Kinds of folders of the run that belong to no single stage."""
_OF_TRAINING: Mapping[str, Kind] = {
    "model": "model",
    "adapters": "model",
    "packs": "data",
}
"""Kinds of what a training writes; all else are metrics, such as its evaluation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPart:
    """Folder or file of a run with one kind."""

    kind: Kind
    path: Path
    """Relative to the run's folder."""
    stage: str = ""
    """Stage that wrote it; empty if it is not of one stage."""


def pieces_of(paths: RunPaths) -> list[RunPart]:
    """Return everything in a run folder but its records.

    Raises:
        DamagedFileError: a plan has other content.
        OSError: a folder or plan cannot be read.
    """
    pieces = [
        RunPart(kind=kind, path=Path(name))
        for name, kind in _OF_RUN.items()
        if name in names_in(paths.run_dir)
    ]
    runs = _runs_of_stages(paths)
    for stage in sorted(names_in(paths.run_dir / "data")):
        for path, kind in _outputs(paths.output_dir(stage), runs.get(stage, "")):
            if names_in(path) or not path.is_dir():  # an empty folder takes no space
                pieces.append(RunPart(kind=kind, path=path.relative_to(paths.run_dir), stage=stage))
    return pieces


def _runs_of_stages(paths: RunPaths) -> dict[str, str]:
    """Return what each stage runs, also of stages that only earlier plans have."""
    runs: dict[str, str] = {}
    for number in range(1, last_plan_number(paths) + 1):
        path = paths.plan(number)
        try:
            for values in read_json(path)["stages"]:
                runs[values["name"]] = values["run"]
        except (KeyError, TypeError) as error:
            raise damaged(path, error) from error
    return runs


def _outputs(output_dir: Path, run: str) -> Iterator[tuple[Path, Kind]]:
    """Yield what a stage has written; what an own stage writes is data as a whole."""
    if run == "preprocess":
        yield output_dir, "parts"
    elif run == "train":
        yield from _outputs_of_training(output_dir)
    else:
        yield output_dir, "data"


def _outputs_of_training(output_dir: Path) -> Iterator[tuple[Path, Kind]]:
    for name in sorted(names_in(output_dir)):
        path = output_dir / name
        if name == "phases":
            for phase in sorted(names_in(path)):
                for entry in sorted(names_in(path / phase)):
                    kind: Kind = "checkpoints" if entry.startswith("checkpoints") else "metrics"
                    yield path / phase / entry, kind
        elif name.startswith("checkpoints") or (name.startswith(".") and name.endswith(".tmp")):
            yield path, "checkpoints"  # the second are what a killed export was writing
        else:
            yield path, _OF_TRAINING.get(name, "metrics")
