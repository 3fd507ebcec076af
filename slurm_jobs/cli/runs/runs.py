"""`slurm-jobs runs`: list runs, newest first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.quantities import Quantity
from slurm_jobs.base.units import num_bytes, significant
from slurm_jobs.cli.arguments import path_of, positive
from slurm_jobs.cli.run_view.problems import source_lines
from slurm_jobs.cli.runs.orphaned_jobs import lost_jobs_if_known, lost_lines, lost_values
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import age_text, duration_text, number_text
from slurm_jobs.cli.terminal.shown_paths import shown_path
from slurm_jobs.cli.typed_times import moment_unix_s

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.run.catalogue import Catalogue, ListedRun, RunChoice
    from slurm_jobs.run_folder.disk_use import DiskUse

DEFAULT_NUMBER = 20
_NOT_KNOWN = "-"


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from slurm_jobs.status.slice_status import Status

    parser.add_argument(
        "--dir",
        type=path_of,
        help="only the runs in this folder; default: $SLURM_JOBS_RUNS_DIR, or else ./runs and all "
        "folders to which you have submitted",
    )
    parser.add_argument(
        "--number",
        metavar="N",
        type=positive,
        default=DEFAULT_NUMBER,
        help=f"only the newest N; default: {DEFAULT_NUMBER}",
    )
    parser.add_argument(
        "--since",
        metavar="WHEN",
        type=moment_unix_s,
        help="only runs that were submitted since then: 7d, 12h, 2026-11-01",
    )
    parser.add_argument("--name", metavar="GLOB", help="only runs with such a name: 'shapes*'")
    parser.add_argument(
        "--status",
        metavar="STATUS",
        choices=get_args(Status),
        help=f"only runs with this status: {', '.join(get_args(Status))}",
    )
    parser.add_argument("--note", metavar="WORDS", help="only runs whose note has these words")
    parser.add_argument(
        "--size", action="store_true", help="measure the disk space of each run, which takes time"
    )


def run_runs(options: argparse.Namespace) -> int:
    """List; exit code 3 if a scheduler could not be queried."""
    from slurm_jobs.commands.run_search.newest_run import where_else
    from slurm_jobs.commands.run_search.remembered_dirs import SearchableDirs, searched_dirs
    from slurm_jobs.commands.run_search.runs_dir import (
        default_runs_dir,
        is_missing,
        refuse_missing_place,
    )
    from slurm_jobs.run.catalogue import EVERY_RUN, RunChoice, list_runs

    runs_dir = default_runs_dir() if options.dir is None else options.dir.absolute()
    searched = SearchableDirs() if options.dir is not None else searched_dirs()
    choice = RunChoice(
        since_unix_s=options.since, name=options.name, note=options.note, status=options.status
    )
    try:
        catalogue = list_runs(searched.there or [runs_dir], number=options.number, choice=choice)
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_missing_place(runs_dir)
        advice = where_else(runs_dir)
        if options.dir is not None:
            advice = f"{is_missing(runs_dir)}; --dir names another folder"
        message = "\n".join([f"no run in {runs_dir}{advice}", *lost_lines(lost_jobs_if_known())])
        raise InputError(message) from error
    catalogue = replace(catalogue, unreadable={**catalogue.unreadable, **searched.away})
    lost = lost_jobs_if_known()
    sizes = _sizes(catalogue) if options.size else {}
    if options.json:
        values = {
            "runs": [_run_values(listed, sizes.get(listed.run_dir)) for listed in catalogue.runs],
            "num_left_out": catalogue.num_left_out,
            "unreadable": {str(folder): why for folder, why in catalogue.unreadable.items()},
            "lost_jobs": lost_values(lost),
        }
        print_json(values)
    else:
        from slurm_jobs.cli.terminal.console import console

        screen = console()
        if catalogue.runs:
            screen.print(_runs_table(catalogue, runs_dir, sizes, screen))
        elif choice != EVERY_RUN:
            first, *others = searched.there or [runs_dir]
            more = f" and {number_text(len(others), 'more folder')}" if others else ""
            print(f"no run in {shown_path(first)}{more} matches {_words(choice)}")
        elif not catalogue.unreadable:
            advice = "" if options.dir is not None else where_else(runs_dir)
            print(f"no run in {shown_path(runs_dir)}{advice}")
        for line in [*_lines_below(catalogue, sizes), *lost_lines(lost)]:
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(listed.status.knows_the_living for listed in catalogue.runs) else 3


def _words(choice: RunChoice) -> str:
    """Return the options that chose no run."""
    given = {
        "--since": choice.since_unix_s,
        "--name": choice.name,
        "--status": choice.status,
        "--note": choice.note,
    }
    return ", ".join(option for option, value in given.items() if value is not None)


def _sizes(catalogue: Catalogue) -> dict[Path, DiskUse]:
    from slurm_jobs.cli.terminal.progress_display import working
    from slurm_jobs.run_folder.disk_use import disk_use

    sizes = {}
    for number, listed in enumerate(catalogue.runs, 1):
        name = listed.run_dir.name
        with working(f"measuring {name}, run {number} of {len(catalogue.runs)}"):
            sizes[listed.run_dir] = disk_use(listed.run_dir)
    return sizes


def _lines_below(catalogue: Catalogue, sizes: Mapping[Path, DiskUse]) -> list[str]:
    """Return what follows the table: the total, what was left out, and what could not be read."""
    lines = []
    if sizes:
        uses = sizes.values()
        text = f"these runs use {num_bytes(sum(use.num_bytes for use in uses))} together"
        linked = sum(use.linked_elsewhere_bytes for use in uses)
        if linked:
            text += f", of which {num_bytes(linked)} are in files that have hard links elsewhere"
        lines.append(text)
    if catalogue.num_left_out:
        older = number_text(catalogue.num_left_out, "older run")
        are = "is" if catalogue.num_left_out == 1 else "are"
        lines.append(f"{older} {are} not listed; --number shows more")
    for listed in catalogue.runs:
        lines += [*source_lines(listed.status), *listed.use.problems]
    for use in sizes.values():
        for folder in use.unreadable:
            lines.append(f"the size leaves out {shown_path(folder)}, which cannot be read")
    lines += [f"cannot read {shown_path(d)}: {why}" for d, why in catalogue.unreadable.items()]
    return list(dict.fromkeys(lines))


_LEAST_HELPFUL = ("scheduler", "GPU h", "duration", "failed")
"""Columns that a narrow screen omits, in this order."""
_GAP_CHARS = 2
"""Between two columns, and after the last one."""
_LEAST_NOTE_CHARS = 16
"""Room that notes get before other columns, the gap included."""
_WIDER_THAN_ANY = 100_000


def _runs_table(
    catalogue: Catalogue, runs_dir: Path, sizes: Mapping[Path, DiskUse], screen: Console
) -> Table:
    """Return a table with one line per run, without the columns that do not fit.

    If not all runs are in `runs_dir`, a column names their folders.

    Notes get the room that is left, and are cut there: `status` and JSON have them whole.
    """
    from slurm_jobs.cli.terminal.console import table_of

    columns = _columns(sizes, time.time())
    if any(run.run_dir.parent.absolute() != runs_dir for run in catalogue.runs):
        columns["folder"] = lambda run: shown_path(run.run_dir.parent)
    has_notes = any(run.note for run in catalogue.runs)
    while True:
        rows = [[cell(run) for cell in columns.values()] for run in catalogue.runs]
        table = table_of(list(columns), rows)
        wide = screen.options.update_width(_WIDER_THAN_ANY)
        room = screen.width - screen.measure(table, options=wide).maximum
        omitted = next((name for name in _LEAST_HELPFUL if name in columns), None)
        if omitted is None or room >= (_LEAST_NOTE_CHARS if has_notes else 0):
            break
        del columns[omitted]
    if not has_notes or room <= _GAP_CHARS + len("note"):
        return table
    most = room - _GAP_CHARS
    for row, run in zip(rows, catalogue.runs, strict=True):
        row.append(run.note if len(run.note) <= most else f"{run.note[: most - 3]}...")
    return table_of([*columns, "note"], rows)


def _columns(
    sizes: Mapping[Path, DiskUse], now_unix_s: float
) -> dict[str, Callable[[ListedRun], str | Text]]:
    """Return what each column shows of a run; the size only if it was measured."""
    from rich.text import Text

    from slurm_jobs.cli.run_view.status_styles import STYLES

    columns: dict[str, Callable[[ListedRun], str | Text]] = {
        "run": lambda run: run.run_dir.name,
        "status": lambda run: Text(run.status.status, style=STYLES[run.status.status]),
        "tasks": lambda run: f"{run.num_completed}/{run.num_tasks}",
        "failed": lambda run: f"{run.num_failed}" if run.num_failed else _NOT_KNOWN,
        "duration": lambda run: _text(run.use.duration_s, duration_text),
        "GPU h": lambda run: _text(run.use.gpu_hours, significant),
        "submitted": lambda run: age_text(run.meta.created_unix_s, now_unix_s),
        "scheduler": lambda run: run.meta.scheduler,
    }
    if sizes:
        columns["size"] = lambda run: num_bytes(sizes[run.run_dir].num_bytes)
    return columns


def _text(quantity: Quantity, write: Callable[[float], str]) -> str:
    """Return a quantity without its unit, or a dash; a lower bound ends with `+`."""
    if quantity.value is None:
        return _NOT_KNOWN
    return write(quantity.value) + ("+" if quantity.at_least else "")


def _run_values(listed: ListedRun, size: DiskUse | None) -> dict[str, Any]:
    use = listed.use
    sizes = None
    if size is not None:
        sizes = {**asdict(size), "unreadable": [str(folder) for folder in size.unreadable]}
    return {
        "run_id": listed.run_dir.name,
        "run_dir": str(listed.run_dir),
        "name": listed.meta.name,
        "status": listed.status.status,
        "num_completed": listed.num_completed,
        "num_failed": listed.num_failed,
        "num_tasks": listed.num_tasks,
        "created_unix_s": listed.meta.created_unix_s,
        "duration_s": use.duration_s.value,
        "gpu_hours": use.gpu_hours.value,
        "is_gpu_hours_at_least": bool(use.gpu_hours.at_least),
        "not_known": list(filter(None, (use.duration_s.missing, use.gpu_hours.missing))),
        "note": listed.note,
        "size": sizes,
        "scheduler": listed.meta.scheduler,
        "asked_unix_s": listed.status.asked_unix_s,
        "problems": [*listed.status.problems, *use.problems],
        "notes": list(listed.status.notes),
    }
