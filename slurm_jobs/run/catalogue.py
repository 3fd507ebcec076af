"""List of the runs in some folders, newest first, with the status of each."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.run.observe import answers
from slurm_jobs.run.run_use import RunUse, run_use
from slurm_jobs.run_folder.notes import read_note
from slurm_jobs.run_folder.paths import RUN_STAMP, RunPaths, age_key
from slurm_jobs.run_folder.run_records import read_meta, read_run
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChoice:
    """Which runs are listed; None for any."""

    since_unix_s: float | None = None
    """Earliest time of the first submit."""
    name: str | None = None
    """Pattern with `*` for the run's id, or for its name without the time in it."""
    note: str | None = None
    """Part of the run's note, in any case."""
    status: Status | None = None

    def has_name(self, run_dir: Path) -> bool:
        """Check whether the name of a run's folder matches the pattern that is asked for."""
        names = (run_dir.name, RUN_STAMP.sub("", run_dir.name))
        return self.name is None or any(fnmatch.fnmatchcase(name, self.name) for name in names)

    def has_age_and_note(self, run_dir: Path) -> bool:
        """Check whether a run is young enough, and its note has the words that are searched.

        Raises:
            OSError, ValueError: `run.json` cannot be read, or has other content.
        """
        paths = RunPaths(run_dir)
        if self.note is not None and self.note.lower() not in read_note(paths).lower():
            return False
        return self.since_unix_s is None or read_meta(paths).created_unix_s >= self.since_unix_s


EVERY_RUN = RunChoice()


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """One line in a list of runs."""

    run_dir: Path
    meta: RunMeta
    status: RunStatus
    use: RunUse
    note: str
    """Empty if the run has none."""

    @property
    def num_tasks(self) -> int:
        """Return the number of slices of all stages."""
        return sum(len(stage.slices) for stage in self.status.stages)

    @property
    def num_completed(self) -> int:
        """Return the number of completed slices."""
        return sum(stage.counts.get("completed", 0) for stage in self.status.stages)

    @property
    def num_failed(self) -> int:
        """Return the number of slices whose newest attempt failed."""
        return sum(stage.counts.get("failed", 0) for stage in self.status.stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Newest runs of some folders."""

    runs: tuple[ListedRun, ...]
    """Newest first."""
    unreadable: Mapping[Path, str]
    """Folders that may be runs but could not be read, with the reason."""
    num_left_out: int
    """Number of older runs that were left out, of those that were chosen."""


def list_runs(
    runs_dirs: Iterable[Path], *, number: int, choice: RunChoice = EVERY_RUN
) -> Catalogue:
    """Return the newest `number` of the chosen runs; query their schedulers together.

    Without a status in `choice`, no more than `number` runs are queried and read as a whole.

    Raises:
        OSError: one of the folders itself cannot be listed.
    """
    unreadable: dict[Path, str] = {}
    chosen = _chosen_by_age(runs_dirs, choice, unreadable)
    num_left_out = 0
    if choice.status is None:
        num_left_out = max(0, len(chosen) - number)
        chosen = chosen[:number]
    runs: dict[Path, RunRecords] = {}
    on_slurm: dict[Path, RunRecords] = {}
    answered: dict[Path, Answer] = {}
    for run_dir in chosen:
        with _noting(run_dir, unreadable):
            run = read_run(run_dir)
            if run.meta.scheduler == "local":  # its queue is in the folder
                answered |= answers({run_dir: run}, fresh=False)
            else:
                on_slurm[run_dir] = run
            runs[run_dir] = run
    answered |= answers(on_slurm, fresh=False)
    listed: list[ListedRun] = []
    now_unix_s = time.time()
    for run_dir, run in runs.items():
        with _noting(run_dir, unreadable):
            answer = answered[run_dir]
            now = read_run(run_dir) if answer.asked_unix_s else run  # see `status_of`
            status = reconcile(now, answer)
            if choice.status not in {None, status.status}:
                continue
            if len(listed) == number:
                num_left_out += 1
                continue
            listed.append(
                ListedRun(
                    run_dir=run_dir,
                    meta=run.meta,
                    status=status,
                    use=run_use(run_dir, now, status, answer, now_unix_s),
                    note=read_note(RunPaths(run_dir)),
                )
            )
    return Catalogue(
        runs=tuple(sorted(listed, key=lambda run: -run.meta.created_unix_s)),
        unreadable=unreadable,
        num_left_out=num_left_out,
    )


@contextmanager
def _noting(run_dir: Path, unreadable: dict[Path, str]) -> Iterator[None]:
    """Record an error that makes a folder unreadable, and continue."""
    try:
        yield
    except OSError as error:
        unreadable[run_dir] = _reason(run_dir, error)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # no plan, truncated, of another version, or no run of ours
        unreadable[run_dir] = str(error).removeprefix(f"{run_dir} ") or type(error).__name__


def _reason(run_dir: Path, error: OSError) -> str:
    """Return `run.json: it is a named pipe, ...`, to follow the run's folder."""
    reason = error.strerror or str(error)
    file = str(error.filename or run_dir).removeprefix(str(run_dir)).lstrip("/")
    return f"{file}: {reason}" if file else reason


def _chosen_by_age(
    runs_dirs: Iterable[Path], choice: RunChoice, unreadable: dict[Path, str]
) -> list[Path]:
    """Return the chosen folders, newest first, and record the unreadable ones.

    A folder is a run if it has a `run.json`; its status is not known here.
    """
    ages: dict[Path, tuple[float, str, str]] = {}
    for runs_dir in runs_dirs:
        for folder in sorted(runs_dir.iterdir()):
            if not choice.has_name(folder):
                continue
            try:
                ages[folder] = age_key(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                unreadable[folder] = _reason(folder, error)
    chosen: list[Path] = []
    for folder in sorted(ages, key=ages.__getitem__, reverse=True):
        with _noting(folder, unreadable):
            if choice.has_age_and_note(folder):
                chosen.append(folder)
    return chosen
