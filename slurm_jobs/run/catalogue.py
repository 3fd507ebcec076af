"""List of the runs in a folder, newest first, with their statuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.reconcile import RunStatus, reconcile
from slurm_jobs.run.model import RunMeta, RunRecords
from slurm_jobs.run.observe import answers
from slurm_jobs.run.paths import age_key
from slurm_jobs.run.store import read_run
from slurm_jobs.schedulers.protocol import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """One line in a list of runs."""

    run_dir: Path
    meta: RunMeta
    status: RunStatus

    @property
    def num_tasks(self) -> int:
        """Return the number of slices of all stages."""
        return sum(len(stage.slices) for stage in self.status.stages)

    @property
    def num_completed(self) -> int:
        """Return the number of completed slices."""
        return sum(stage.counts.get("completed", 0) for stage in self.status.stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Newest runs of a folder."""

    runs: tuple[ListedRun, ...]
    """Newest first."""
    unreadable: Mapping[Path, str]
    """Folders that may be runs but could not be read, with the reason."""
    num_left_out: int
    """Number of older runs that were left out."""


def list_runs(runs_dir: Path, *, number: int) -> Catalogue:
    """Return the newest `number` runs of a folder; query their schedulers together.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    found, unreadable = _runs_by_age(runs_dir)
    runs: dict[Path, RunRecords] = {}
    said: dict[Path, Answer] = {}
    for run_dir in found[:number]:
        with _noting(run_dir, unreadable):
            run = read_run(run_dir)
            if run.meta.scheduler == "local":  # its queue is in the folder
                said |= answers({run_dir: run}, fresh=False)
            runs[run_dir] = run
    on_slurm = {run_dir: run for run_dir, run in runs.items() if run_dir not in said}
    said |= answers(on_slurm, fresh=False)
    listed = []
    for run_dir, run in runs.items():
        with _noting(run_dir, unreadable):
            now = read_run(run_dir) if said[run_dir].asked_unix_s else run  # see `status_of`
            status = reconcile(now, said[run_dir])
            listed.append(ListedRun(run_dir=run_dir, meta=run.meta, status=status))
    return Catalogue(
        runs=tuple(sorted(listed, key=lambda run: -run.meta.created_unix_s)),
        unreadable=unreadable,
        num_left_out=max(0, len(found) - number),
    )


@contextmanager
def _noting(run_dir: Path, unreadable: dict[Path, str]) -> Iterator[None]:
    """Record an error that makes a folder unreadable, and continue."""
    try:
        yield
    except OSError as error:
        unreadable[run_dir] = error.strerror or str(error)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # no plan, truncated, of another version, or no run of ours
        unreadable[run_dir] = str(error).removeprefix(f"{run_dir} ") or type(error).__name__


def _runs_by_age(runs_dir: Path) -> tuple[list[Path], dict[Path, str]]:
    """Return folders with a `run.json`, newest first, and the reasons for unreadable folders."""
    ages: dict[Path, tuple[float, str, str]] = {}
    unreadable: dict[Path, str] = {}
    for folder in sorted(runs_dir.iterdir()):
        try:
            ages[folder] = age_key(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreadable[folder] = error.strerror or str(error)
    return sorted(ages, key=ages.__getitem__, reverse=True), unreadable
