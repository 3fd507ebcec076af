"""`slurm-jobs run SPEC`: submit, watch to the end, and print the report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, add_spec, command_text, print_json, shown_path
from slurm_jobs.cli.submit import print_notes, submit_spec
from slurm_jobs.cli.watch import watch

if TYPE_CHECKING:
    from slurm_jobs.reconcile import RunStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Submit and watch; exit code 1 if the run failed."""
    submission = submit_spec(options)
    run_dir = submission.paths.run_dir
    if not options.json:
        print_notes(submission)
        print(f"run folder: {shown_path(run_dir)}\n")
    status, code = watch(run_dir, quiet=options.json, tells_failures=False)
    if status is not None and options.json:
        from slurm_jobs.cli.status import status_values

        print_json(status_values(run_dir, status, time.time()))
    elif status is not None:
        _finish(run_dir, status)
    return code


def _finish(run_dir: Path, status: RunStatus) -> None:
    """Print the report, then each failure once, with its log, and the next command."""
    from slurm_jobs.cli.problems import problem_lines
    from slurm_jobs.cli.report import write_report

    print()
    write_report(run_dir, told=_failed_attempts(status))
    lines = problem_lines(run_dir, status, with_logs=True)
    for line in ["", *lines] if lines else ():
        print(line)
    if status.status == "completed":
        _print_next(run_dir, status)


def _failed_attempts(status: RunStatus) -> frozenset[str]:
    """Return the attempts whose failures `problem_lines` prints or counts."""
    from slurm_jobs.report.words import attempt_name

    return frozenset(
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


def _print_next(run_dir: Path, status: RunStatus) -> None:
    folder = shown_path(run_dir)
    last = next(
        stage.stage.name for stage in reversed(status.stages) if stage.stage.run != "report"
    )
    print("\nTry next:")
    print(f"  {command_text('status', folder)}")
    print(f"  {command_text('logs', folder, last, '--tail', '20')}")
    print(f"  {command_text('report', folder, '--json')}")
