"""`slurm-jobs run SPEC`: submit, watch to the end, and print the report."""

from __future__ import annotations

import argparse
import time

from slurm_jobs.cli.arguments import add_spec
from slurm_jobs.cli.run_view.follow_run import watch
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.run_view.status_json import status_values
from slurm_jobs.cli.specs.submit import print_submission, submit_spec
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)


def run_run(options: argparse.Namespace) -> int:
    """Submit and watch, then print the report; exit code 1 if the run failed."""
    from slurm_jobs.base.units import attempt_name
    from slurm_jobs.cli.reports.report import write_report

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
