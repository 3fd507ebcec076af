"""`slurm-jobs runs`: list runs, newest first."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import add_json, age_text, path_of, positive, print_json, shown_path
from slurm_jobs.common.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from slurm_jobs.run.catalogue import Catalogue

DEFAULT_NUMBER = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> int:
    """List; exit code 3 if a scheduler could not be queried."""
    from slurm_jobs.run.catalogue import list_runs
    from slurm_jobs.run.find import default_runs_dir, is_missing, refuse_missing_place

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
    from slurm_jobs.cli.output import console
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

    from slurm_jobs.cli.status_table import STYLES

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
