"""`slurm-jobs status RUN`: show a run's status, from its records and one query of Slurm."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.named_run import named_run

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus, StageStatus


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
    from slurm_jobs.run_folder.notes import read_note
    from slurm_jobs.run_folder.paths import RunPaths

    run_dir = named_run(options.run)
    # The view of a run takes longer to import than to find that there is no run.
    from slurm_jobs.cli.exit_codes import exit_code
    from slurm_jobs.cli.run_view.problems import problem_lines
    from slurm_jobs.cli.run_view.run_snapshot import read_view
    from slurm_jobs.cli.run_view.stages_table import stages_table, title_text
    from slurm_jobs.cli.run_view.status_json import status_values
    from slurm_jobs.cli.terminal.console import console, print_json
    from slurm_jobs.run_folder.run_values import stages_named

    view = read_view(run_dir, fresh=options.fresh)
    stages = []
    if options.stage is not None:
        origins = {stage.stage.name: stage.stage.origin for stage in view.status.stages}
        stages = [view.status.stage(name) for name in stages_named(options.stage, origins)]
    if options.json:
        values = status_values(run_dir, view.status, time.time())
        print_json(_with_attempts(values, run_dir, stages))
        return exit_code(view.status)
    screen = console()
    now_s = time.time()
    screen.print(title_text(view, now_s), soft_wrap=True)
    if text := read_note(RunPaths(run_dir)):
        screen.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)
    screen.print(stages_table(view, now_unix_s=now_s, width=screen.width))
    if stages:
        from slurm_jobs.cli.run_view.attempt_lines import print_attempts
        from slurm_jobs.commands.explain_attempts import explain_attempts
        from slurm_jobs.report.attempts.attempt_table import MAX_SLICES

        for stage in stages:
            attempts = explain_attempts(run_dir, stage, now_s, most_slices=MAX_SLICES)
            print_attempts(attempts, screen, now_s)
    lines = problem_lines(run_dir, view.status)
    for line in lines if stages else [*_retried_lines(run_dir, view.status), *lines]:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if (note := cleaned_note(RunPaths(run_dir))) is not None:
        screen.print(note, markup=False, highlight=False, soft_wrap=True)
    return exit_code(view.status)


def _with_attempts(
    values: dict[str, Any], run_dir: Path, stages: Sequence[StageStatus]
) -> dict[str, Any]:
    """Return a status as JSON values, with the attempts of these stages."""
    if not stages:
        return values
    from slurm_jobs.commands.explain_attempts import explain_attempts
    from slurm_jobs.report.attempts.attempt_table import entry_values

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
    from slurm_jobs.cli.terminal.numbers_in_words import number_text
    from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

    retried = []
    for stage in status.stages:
        waiting_again = [p for p in stage.slices if p.status == "waiting" and p.attempt == 1]
        num = len(waiting_again) + sum(part.attempt > 1 for part in stage.slices)
        if num and stage.stage.run != "report":
            retried.append((stage.stage.name, num))
    if not retried:
        return []
    names = ", ".join(
        f"{name} ({number_text(num, 'slice')})" if num > 1 else name for name, num in retried
    )
    command = command_text("status", shown_path(run_dir), "--stage", retried[0][0])
    return [f"tried again: {names}. To see how each attempt ended: {command}"]
