"""Verbs status, runs and watch, and run: submit, watch, report."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.lost_jobs import lost_jobs_if_known, lost_lines, lost_values
from slurm_jobs.cli.options import (
    add_run,
    add_spec,
    age_text,
    command_text,
    named_run,
    number_text,
    path_of,
    positive,
    print_json,
    shown_path,
)
from slurm_jobs.cli.problems import problem_lines, source_lines
from slurm_jobs.cli.run_view import (
    STYLES,
    exit_code,
    read_view,
    stages_table,
    status_values,
    title_text,
    watch,
)
from slurm_jobs.cli.submit import print_submission, submit_spec
from slurm_jobs.run_folder.run_records import stages_named
from slurm_jobs.shared.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from slurm_jobs.run.observe import Catalogue
    from slurm_jobs.status import RunStatus, StageStatus


# `slurm-jobs runs`: list runs, newest first.


DEFAULT_NUMBER = 20


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
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


def run_runs(options: argparse.Namespace) -> int:
    """List; exit code 3 if a scheduler could not be queried."""
    from slurm_jobs.commands.newest_run import where_else
    from slurm_jobs.commands.remembered_dirs import SearchableDirs, searched_dirs
    from slurm_jobs.commands.runs_dir import default_runs_dir, is_missing, refuse_missing_place
    from slurm_jobs.run.observe import list_runs

    runs_dir = default_runs_dir() if options.dir is None else options.dir.absolute()
    searched = SearchableDirs() if options.dir is not None else searched_dirs()
    try:
        catalogue = list_runs(searched.there or [runs_dir], number=options.number)
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_missing_place(runs_dir)
        advice = where_else(runs_dir)
        if options.dir is not None:
            advice = f"{is_missing(runs_dir)}; --dir names another folder"
        message = "\n".join([f"no run in {runs_dir}{advice}", *lost_lines(lost_jobs_if_known())])
        raise InputError(message) from error
    catalogue = replace(catalogue, unreadable={**catalogue.unreadable, **searched.away})
    lost = lost_jobs_if_known()
    if options.json:
        print_json({**_catalogue_values(catalogue), "lost_jobs": lost_values(lost)})
    else:
        from slurm_jobs.cli.options import console

        screen = console()
        if catalogue.runs:
            screen.print(_runs_table(catalogue, runs_dir, time.time()))
        elif not catalogue.unreadable:
            advice = "" if options.dir is not None else where_else(runs_dir)
            print(f"no run in {shown_path(runs_dir)}{advice}")
        if catalogue.num_left_out:
            print(f"and {catalogue.num_left_out} older: --number shows more")
        lines = dict.fromkeys(line for run in catalogue.runs for line in source_lines(run.status))
        unreadable = [
            f"cannot read {shown_path(d)}: {why}" for d, why in catalogue.unreadable.items()
        ]
        for line in [*lines, *unreadable, *lost_lines(lost)]:
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(listed.status.knows_the_living for listed in catalogue.runs) else 3


def _runs_table(catalogue: Catalogue, runs_dir: Path, now_unix_s: float) -> Table:
    """Return a table with one line per run, with their folders if not all are in `runs_dir`."""
    from rich.text import Text

    from slurm_jobs.cli.options import table_of

    folders = {listed.run_dir: listed.run_dir.parent for listed in catalogue.runs}
    has_folders = any(folder.absolute() != runs_dir for folder in folders.values())
    rows = []
    for listed in catalogue.runs:
        row: list[str | Text] = [
            listed.run_dir.name,
            Text(listed.status.status, style=STYLES[listed.status.status]),
            f"{listed.num_completed}/{listed.num_tasks}",
            age_text(listed.meta.created_unix_s, now_unix_s),
            listed.meta.scheduler,
        ]
        rows.append([*row, shown_path(folders[listed.run_dir])] if has_folders else row)
    columns = ["run", "status", "tasks", "submitted", "scheduler"]
    return table_of([*columns, "folder"] if has_folders else columns, rows)


def _catalogue_values(catalogue: Catalogue) -> dict[str, Any]:
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
    parser.add_argument(
        "--stage", metavar="NAME", help="also show how each attempt of this stage ended, and why"
    )


def run_status(options: argparse.Namespace) -> int:
    """Print; exit code 1 if the run failed.

    Raises:
        InputError: the run has no stage of that name.
    """
    from slurm_jobs.run_folder.cleanings import cleaned_note
    from slurm_jobs.run_folder.paths import RunPaths

    run_dir = named_run(options.run)
    view = read_view(run_dir, fresh=options.fresh)
    stages = [] if options.stage is None else _stages_named(options.stage, view.status)
    if options.json:
        values = status_values(run_dir, view.status, time.time())
        print_json(_with_attempts(values, run_dir, stages))
        return exit_code(view.status)
    from slurm_jobs.cli.options import console

    screen = console()
    now_s = time.time()
    screen.print(title_text(view, now_s), soft_wrap=True)
    screen.print(stages_table(view, now_unix_s=now_s, width=screen.width))
    if stages:
        from slurm_jobs.cli.attempt_lines import print_attempts
        from slurm_jobs.commands.explain_attempts import explain_attempts
        from slurm_jobs.report.attempt_table import MAX_SLICES

        for stage in stages:
            attempts = explain_attempts(run_dir, stage, now_s, most_slices=MAX_SLICES)
            print_attempts(attempts, screen, now_s)
    lines = problem_lines(run_dir, view.status)
    for line in lines if stages else [*_retried_lines(run_dir, view.status), *lines]:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if (note := cleaned_note(RunPaths(run_dir))) is not None:
        screen.print(note, markup=False, highlight=False, soft_wrap=True)
    return exit_code(view.status)


def _stages_named(name: str, status: RunStatus) -> list[StageStatus]:
    """Return the stages with this name; for a matrix, all of its combinations."""
    origins = {stage.stage.name: stage.stage.origin for stage in status.stages}
    return [status.stage(each) for each in stages_named(name, origins)]


def _with_attempts(
    values: dict[str, Any], run_dir: Path, stages: Sequence[StageStatus]
) -> dict[str, Any]:
    """Return a status as JSON values, with the attempts of these stages."""
    if not stages:
        return values
    from slurm_jobs.commands.explain_attempts import explain_attempts
    from slurm_jobs.report.attempt_table import entry_values

    attempts = {
        stage.stage.name: [
            entry_values(entry) for entry in explain_attempts(run_dir, stage, time.time()).entries
        ]
        for stage in stages
    }
    listed = [
        {**stage, "attempts": attempts[stage["name"]]} if stage["name"] in attempts else stage
        for stage in values["stages"]
    ]
    return {**values, "stages": listed}


def _retried_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """Return a line with the stages that were tried again, and the command that says why.

    A report is made again by every resume.
    """
    retried = [
        (stage.stage.name, sum(part.attempt > 1 for part in stage.slices))
        for stage in status.stages
        if stage.stage.run != "report" and any(part.attempt > 1 for part in stage.slices)
    ]
    if not retried:
        return []
    names = ", ".join(
        f"{name} ({number_text(num, 'slice')})" if num > 1 else name for name, num in retried
    )
    command = command_text("status", shown_path(run_dir), "--stage", retried[0][0])
    return [f"tried again: {names}; how each attempt ended: {command}"]


# `slurm-jobs watch RUN`: show a live view of a run until it ends.


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)


def run_watch(options: argparse.Namespace) -> int:
    """Watch, and print at the end what failed; the exit code is that of `status`."""
    run_dir = named_run(options.run)
    status, code = watch(run_dir, quiet=options.json)
    if status is None:
        return code
    if options.json:
        print_json(status_values(run_dir, status, time.time()))
        return code
    for line in end_lines(run_dir, status):
        print(line)
    return code


def end_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """Return what failed and what to type next."""
    folder = shown_path(run_dir)
    lines = problem_lines(run_dir, status)
    if status.status == "completed":
        lines.append(f"next: {command_text('report', folder)}")
    elif status.status == "waiting":
        lines.append("no job of this run is queued or running")
        lines.append(f"next: {command_text('resume', folder)}")
    return lines


# `slurm-jobs run SPEC`: submit, watch to the end, and print the report.


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)


def run_run(options: argparse.Namespace) -> int:
    """Submit and watch, then print the report; exit code 1 if the run failed."""
    from slurm_jobs.cli.report import write_report
    from slurm_jobs.shared.units import attempt_name

    submission = submit_spec(options)
    run_dir = submission.paths.run_dir
    folder = shown_path(run_dir)
    if not options.json:
        print_submission(submission)
        print()
    status, code = watch(run_dir, quiet=options.json, prints_failures=False)
    if status is None:
        return code
    if options.json:
        print_json(status_values(run_dir, status, time.time()))
        return code
    print()
    failed_attempts = frozenset(
        attempt_name(
            stage.stage.name,
            part.slice_index,
            part.attempt if part.ending is None else part.ending.attempt,
            part.job_id,
        )
        for stage in status.stages
        for part in stage.slices
        if part.status == "failed"
    )
    write_report(run_dir, shown=failed_attempts)  # the lines below have their failures
    lines = problem_lines(run_dir, status, with_logs=True)
    for line in ["", *lines] if lines else ():
        print(line)
    if status.status == "completed":
        stages = [stage.stage for stage in status.stages if stage.stage.run != "report"]
        print("\nTry next:")
        print(f"  {command_text('status', folder)}")
        print(f"  {command_text('logs', folder, stages[-1].name, '--tail', '20')}")
        print(f"  {command_text('report', folder, '--json')}")
    return code
