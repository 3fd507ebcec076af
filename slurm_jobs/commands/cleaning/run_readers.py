"""Runs whose spec reads files of another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import SlurmJobsError
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.run.observe import is_proven_complete
from slurm_jobs.run_folder.paths import RunPaths, is_run
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Run that reads files of another."""

    run_dir: Path
    text: str
    """Path in its spec."""


class SpecTexts:
    """Texts of the specs of all runs in a folder, each read once."""

    def __init__(self) -> None:
        """Start without a folder."""
        self._by_folder: dict[Path, dict[Path, str]] = {}

    def of(self, folder: Path) -> Mapping[Path, str]:
        """Return the texts by run; a run whose spec cannot be read is left out."""
        if folder not in self._by_folder:
            texts = self._by_folder[folder] = {}
            for run_dir in filter(is_run, sorted(folder.iterdir())):
                with suppress(OSError, UnicodeDecodeError):
                    texts[run_dir] = read_text(RunPaths(run_dir).resolved_spec)
        return self._by_folder[folder]


def reader_of(specs: SpecTexts, run_dir: Path, files: Sequence[Path]) -> Reader | None:
    """Return an incomplete run whose spec names one of the files of another; None if there is none.

    `files` are below `run_dir`; a path above or below one of them counts. Only runs in the same
    folder of runs are searched.
    """
    real = run_dir.resolve()
    for other, text in specs.of(run_dir.parent).items():
        if run_dir.name not in text or other.resolve() == real:
            continue
        with suppress(SlurmJobsError, OSError, ValueError):
            for path in _texts_in(read_resolved_values(RunPaths(other))):
                if _is_read(Path(path), real, files) and not is_proven_complete(read_run(other)):
                    return Reader(run_dir=other, text=path)
    return None


def _is_read(path: Path, real: Path, files: Sequence[Path]) -> bool:
    if not path.is_absolute() or not path.resolve().is_relative_to(real):
        return False
    path = path.resolve()
    places = [file.resolve() for file in files]
    return any(path.is_relative_to(place) or place.is_relative_to(path) for place in places)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)
