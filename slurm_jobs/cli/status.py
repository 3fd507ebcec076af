"""Verbs status and runs, and the tables that other verbs show too."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import (
    add_json,
    add_run,
    age_text,
    clock_text,
    duration_text,
    path_of,
    positive,
    print_json,
    shown_path,
)
from slurm_jobs.cli.problems import (
    NO_NEW_FAILURES,
    FailedAttempt,
    Failure,
    NewFailures,
    last_failure,
    new_failures,
)
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.files import ranges_text, read_json
from slurm_jobs.status import RunStatus, SliceStatus, Status

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.run.observe import Catalogue
    from slurm_jobs.status import StageStatus


# Progress of an array as a grid of cells, lettered and coloured by status.
#
# If an array has more slices than the screen has room, a cell represents several, and shows the
# worst of them: a single failure among ten thousand slices is visible.


LETTERS: dict[Status, str] = {
    "failed": "F",
    "unknown": "?",
    "stranded": "S",
    "cancelled": "X",
    "running": "R",
    "waiting": ".",
    "completed": "C",
}
"""Worst first: a cell shows the first status that one of its slices has."""

_CELL_STYLES: dict[Status, str] = {
    "failed": "bold white on red",
    "unknown": "bold white on magenta",
    "stranded": "black on yellow",
    "cancelled": "black on yellow",
    "running": "black on cyan",
    "waiting": "dim",
    "completed": "black on green",
}
_RANK = {status: rank for rank, status in enumerate(LETTERS)}
GROUP = 10
"""Cells between two gaps, so that a cell's number can be counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Cells in rows."""

    rows: tuple[tuple[Status, ...], ...]
    slices_per_cell: int

    @property
    def first_slices(self) -> list[int]:
        """Number of the first slice of each row."""
        before = [0]
        for row in self.rows[:-1]:
            before.append(before[-1] + len(row) * self.slices_per_cell)
        return before


def make_grid(statuses: Sequence[Status], *, width: int, max_rows: int) -> Grid:
    """Arrange the slices of a stage in cells, in slice order.

    Args:
        statuses: for all slices; at least one.
        width: characters of a line, with the slice number that a row begins with.
        max_rows: at least 1.
    """
    groups = max(1, (width - _label_width(statuses)) // (GROUP + 1))
    num_columns = groups * GROUP
    per_cell = next(n for n in _round_numbers() if -(-len(statuses) // n) <= num_columns * max_rows)
    cells = [
        min(statuses[start : start + per_cell], key=_RANK.__getitem__)
        for start in range(0, len(statuses), per_cell)
    ]
    rows = [
        tuple(cells[start : start + num_columns]) for start in range(0, len(cells), num_columns)
    ]
    return Grid(rows=tuple(rows), slices_per_cell=per_cell)


def _round_numbers() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on."""
    for power in count():
        yield from (factor * 10**power for factor in (1, 2, 5))


def _label_width(statuses: Sequence[Status]) -> int:
    return len(str(len(statuses) - 1))


def grid_lines(statuses: Sequence[Status], *, width: int, max_rows: int) -> list[Text]:
    """Return the grid as lines of text, each with the number of its first slice."""
    from rich.text import Text

    grid = make_grid(statuses, width=width, max_rows=max_rows)
    lines = []
    for first, row in zip(grid.first_slices, grid.rows, strict=True):
        line = Text(no_wrap=True)
        line.append(f"{first:>{_label_width(statuses)}}", style="dim")
        for number, status in enumerate(row):
            line.append(" " if number % GROUP == 0 else "")
            line.append(LETTERS[status], style=_CELL_STYLES[status])
        lines.append(line)
    return lines


def legend(statuses: Sequence[Status], *, slices_per_cell: int) -> Text:
    """Return the meaning of the letters in a grid, and the slices per cell."""
    from rich.text import Text

    present = set(statuses)
    line = Text(no_wrap=True, overflow="ellipsis")
    for status, letter in LETTERS.items():
        if status in present:
            line.append(letter, style=_CELL_STYLES[status])
            line.append(f" {status}  ", style="dim")
    if slices_per_cell > 1:
        line.append(f"a cell is {slices_per_cell} slices, the worst shows", style="dim")
    return line


# Snapshot of a run: everything that `status` and `watch` show, read at one moment.


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Snapshot of a run."""

    run_id: str
    scheduler: str
    created_unix_s: float
    status: RunStatus
    progress: Mapping[str, str]
    """Progress of the single task of a running stage, by stage."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Progress as a number from 0 to 1, if the task reports it."""
    failure: Failure | None = None
    """Last failure, if it was requested."""
    new_failures: NewFailures = NO_NEW_FAILURES


def look(
    run_dir: Path,
    *,
    fresh: bool = False,
    with_failure: bool = False,
    told: Collection[FailedAttempt] | None = None,
) -> Seen:
    """Read a run and query its scheduler.

    Args:
        run_dir: the run's folder.
        fresh: see `observe.status_of`.
        with_failure: look for the last failure, with the end of its log.
        told: look for the failures that are not among these.
    """
    status = status_of(run_dir, fresh=fresh)
    meta = read_meta(RunPaths(run_dir))
    told_by = {
        s.stage.name: task_progress(run_dir, s.stage.name, s.slices[0])
        for s in status.stages
        if s.status == "running" and s.stage.num_slices == 1
    }
    return Seen(
        run_id=meta.run_id,
        scheduler=meta.scheduler,
        created_unix_s=meta.created_unix_s,
        status=status,
        progress={name: text for name, (text, _) in told_by.items()},
        shares={name: share for name, (_, share) in told_by.items() if share is not None},
        failure=last_failure(run_dir, status) if with_failure else None,
        new_failures=NO_NEW_FAILURES if told is None else new_failures(run_dir, status, told),
    )


def task_progress(run_dir: Path, stage: str, part: SliceStatus) -> tuple[str, float | None]:
    """Return the progress that a running task reported: in words, and as a share if known."""
    path = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt) / "progress.json"
    attempt = f"attempt {part.attempt}: " if part.attempt > 1 else ""
    try:
        values: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        return attempt.removesuffix(": "), None
    share = f"{values['done']}/{values['total']} {values['unit']}"
    text = f"{attempt}{share} {values['detail']}".strip()
    return text, values["done"] / values["total"] if values["total"] else None


# `slurm-jobs runs`: list runs, newest first.


DEFAULT_NUMBER = 20


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--dir",
        type=path_of,
        help="the folder of the runs; default: ./runs, or $SLURM_JOBS_RUNS_DIR",
    )
    parser.add_argument(
        "--number",
        metavar="N",
        type=positive,
        default=DEFAULT_NUMBER,
        help=f"only the newest N; default: {DEFAULT_NUMBER}",
    )
    add_json(parser)


def run_runs(options: argparse.Namespace) -> int:
    """List; exit code 3 if a scheduler could not be queried."""
    from slurm_jobs.commands.find_run import default_runs_dir, is_missing, refuse_missing_place
    from slurm_jobs.run.observe import list_runs

    runs_dir = default_runs_dir() if options.dir is None else options.dir.absolute()
    try:
        catalogue = list_runs(runs_dir, number=options.number)
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_missing_place(runs_dir)
        message = f"no runs in {runs_dir}{is_missing(runs_dir)}; --dir names another folder"
        raise InputError(message) from error
    if options.json:
        print_json(catalogue_values(catalogue))
    else:
        _print(catalogue, runs_dir)
    return 0 if all(listed.status.knows_the_living for listed in catalogue.runs) else 3


def _print(catalogue: Catalogue, runs_dir: Path) -> None:
    from slurm_jobs.cli.options import console
    from slurm_jobs.cli.problems import source_lines

    screen = console()
    if catalogue.runs:
        screen.print(runs_table(catalogue, time.time()))
    elif not catalogue.unreadable:
        print(f"no run in {shown_path(runs_dir)}")
    if catalogue.num_left_out:
        print(f"and {catalogue.num_left_out} older: --number shows more")
    lines = dict.fromkeys(line for run in catalogue.runs for line in source_lines(run.status))
    unreadable = [f"cannot read {shown_path(d)}: {why}" for d, why in catalogue.unreadable.items()]
    for line in [*lines, *unreadable]:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)


def runs_table(catalogue: Catalogue, now_unix_s: float) -> Table:
    """Return a table with one line per run."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "status", "tasks", "submitted", "scheduler"):
        table.add_column(column, overflow="fold")
    for listed in catalogue.runs:
        table.add_row(
            Text(listed.run_dir.name),
            Text(listed.status.status, style=STYLES[listed.status.status]),
            f"{listed.num_completed}/{listed.num_tasks}",
            age_text(listed.meta.created_unix_s, now_unix_s),
            listed.meta.scheduler,
        )
    return table


def catalogue_values(catalogue: Catalogue) -> dict[str, Any]:
    """Return the list as JSON values."""
    return {
        "runs": [
            {
                "run_id": listed.run_dir.name,
                "run_dir": str(listed.run_dir),
                "status": listed.status.status,
                "num_completed": listed.num_completed,
                "num_tasks": listed.num_tasks,
                "created_unix_s": listed.meta.created_unix_s,
                "scheduler": listed.meta.scheduler,
                "asked_unix_s": listed.status.asked_unix_s,
                "problems": list(listed.status.problems),
                "notes": list(listed.status.notes),
            }
            for listed in catalogue.runs
        ],
        "num_left_out": catalogue.num_left_out,
        "unreadable": {str(folder): why for folder, why in catalogue.unreadable.items()},
    }


# `slurm-jobs status RUN`: show a run's status, from its records and one query of Slurm.


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="query Slurm again, even if another command did seconds ago",
    )
    add_json(parser)


def run_status(options: argparse.Namespace) -> int:
    """Print; exit code 1 if the run failed."""
    from slurm_jobs.commands.find_run import find_run

    run_dir = find_run(options.run)
    seen = look(run_dir, fresh=options.fresh)
    if options.json:
        print_json(status_values(run_dir, seen.status, time.time()))
    else:
        from slurm_jobs.cli.options import console
        from slurm_jobs.cli.problems import problem_lines

        screen = console()
        now_s = time.time()
        screen.print(title_text(seen, now_s), soft_wrap=True)
        screen.print(stages_table(seen, now_unix_s=now_s, width=screen.width))
        for line in problem_lines(run_dir, seen.status):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    return exit_code(seen.status)


def exit_code(status: RunStatus) -> int:
    """Return 0 for an active or complete run, 1 for a failed one, 3 if it is unknown."""
    if status.status == "unknown":
        return 3
    return 1 if status.status in {"failed", "cancelled", "stranded"} else 0


def status_values(run_dir: Path, status: RunStatus, now_unix_s: float) -> dict[str, Any]:
    """Return a status as JSON values; ages in seconds, None for what was read from files."""
    from slurm_jobs.cli.problems import completed_notes

    notes = completed_notes(run_dir, status)
    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "problems": list(status.problems),
        "notes": list(status.notes),
        "asked_unix_s": status.asked_unix_s,
        "stages": [
            {
                "name": stage.stage.name,
                "run": stage.stage.run,
                "status": stage.status,
                "sources": list(stage.sources),
                "age_s": _age_s(status, stage.sources, now_unix_s),
                "reason": stage.reason,
                "counts": dict(stage.counts),
                "slices_by_status": {
                    word: ranges_text(s.slice_index for s in stage.slices if s.status == word)
                    for word in stage.counts
                },
                "slices": [
                    {
                        **_slice_values(run_dir, stage, part, notes),
                        "age_s": _age_s(status, (part.source,), now_unix_s),
                    }
                    for part in stage.slices
                ],
            }
            for stage in status.stages
        ],
    }


def _age_s(status: RunStatus, sources: tuple[str, ...], now_unix_s: float) -> float | None:
    asked = status.asked_for(sources)
    return None if asked is None else round(max(0.0, now_unix_s - asked), 1)


def _slice_values(
    run_dir: Path,
    stage: StageStatus,
    part: SliceStatus,
    notes: Mapping[tuple[str, int], str],
) -> dict[str, Any]:
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    if part.status == "failed":
        from slurm_jobs.cli.problems import reason_of

        values["reason"] = reason_of(run_dir, stage.stage.name, part)
    elif part.status == "completed":
        values["reason"] = notes.get((stage.stage.name, part.slice_index), part.reason)
    return values


# A run's stages as a table. Layout only: `look` has read everything.


STYLES: dict[Status, str] = {
    "completed": "green",
    "running": "cyan",
    "waiting": "dim",
    "failed": "bold red",
    "cancelled": "yellow",
    "stranded": "yellow",
    "unknown": "magenta",
}
WIDE_ENOUGH = 80
"""Below this many characters the least helpful columns are omitted."""


def title_text(seen: Seen, now_unix_s: float) -> Text:
    """Return the run, its status, and the age of the status."""
    from rich.text import Text

    status = seen.status
    asked = status.asked_unix_s
    return Text.assemble(
        (seen.run_id, "bold"),
        f" on {seen.scheduler}, submitted {age_text(seen.created_unix_s, now_unix_s)}: ",
        (status.status, STYLES[status.status]),
        f" (asked {age_text(asked, now_unix_s)})" if asked is not None else "",
    )


def stages_table(seen: Seen, *, now_unix_s: float, width: int) -> Table:
    """Return a table with one line per stage."""
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= WIDE_ENOUGH
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("stage", "status", "tasks"):
        table.add_column(column, overflow="fold")
    for column in ("job", "source") if is_wide else ():
        table.add_column(column, overflow="fold")
    table.add_column("detail", overflow="fold")
    for stage in seen.status.stages:
        table.add_row(
            stage.stage.name,
            Text(stage.status, style=STYLES[stage.status]),
            tasks_text(stage),
            *([_jobs_text(stage), source_text(seen.status, stage, now_unix_s)] if is_wide else []),
            Text(detail_text(seen, stage, now_unix_s)),
        )
    return table


def tasks_text(stage: StageStatus) -> str:
    """Return `3/4, 1 failed`."""
    counts = stage.counts
    total = stage.stage.num_slices
    done = f"{counts.get('completed', 0)}/{total}"
    others = [f"{counts[word]} {word}" for word in STYLES if word != "completed" and counts[word]]
    return ", ".join([done, *others]) if total > 1 else done


def _jobs_text(stage: StageStatus) -> str:
    ids = dict.fromkeys((s.job_id or "").partition("_")[0] for s in stage.slices)
    return " ".join(job_id for job_id in ids if job_id) or "-"


def source_text(status: RunStatus, stage: StageStatus, now_unix_s: float) -> str:
    """Return the source of the status and its age: `squeue, 4 s ago`; `record`."""
    names = " + ".join(stage.sources)
    asked = status.asked_for(stage.sources)
    return names if asked is None else f"{names}, {age_text(asked, now_unix_s)}"


def detail_text(seen: Seen, stage: StageStatus, now_unix_s: float) -> str:
    """Return the progress of a running task, or why a stage waits, with its expected start."""
    if stage.status == "running":
        return seen.progress.get(stage.stage.name) or _start_text(stage, now_unix_s)
    if stage.status in {"waiting", "stranded"}:
        texts = (reason_to_wait(stage), _start_text(stage, now_unix_s))
        return "; ".join(text for text in texts if text)
    return ""


def reason_to_wait(stage: StageStatus) -> str:
    """Return why a stage waits, or can never start: its reason, or that of its first such slice."""
    waits = [part for part in stage.slices if part.status == stage.status]
    waits.sort(key=lambda part: not part.wait)
    return stage.reason or (waits or stage.slices)[0].reason


def _start_text(stage: StageStatus, now_unix_s: float) -> str:
    """Return when the next waiting task should start, if Slurm gives an estimate."""
    starts = [
        part.start_unix_s
        for part in stage.slices
        if part.status == "waiting" and part.start_unix_s is not None
    ]
    first = min((start for start in starts if start > now_unix_s), default=None)
    if first is None:
        return ""
    what = "next expected" if stage.status == "running" else "expected"
    in_s = first - now_unix_s
    return f"{what} to start {clock_text(first, now_unix_s)} (in {duration_text(in_s)})"
