"""Verb submit."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import add_spec
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, short_note, shown_path

if TYPE_CHECKING:
    from slurm_jobs.commands.submit import Submission
    from slurm_jobs.run.parents import SubmittedJob


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)


def run_submit(options: argparse.Namespace) -> int:
    """Submit, and print the run's folder and the next command."""
    submission = submit_spec(options)
    run_dir = submission.paths.run_dir
    if options.json:
        jobs, notes = list(map(job_values, submission.jobs)), list(submission.notes)
        values = {"run_id": run_dir.name, "run_dir": str(run_dir)}
        print_json({**values, "jobs": jobs, "notes": notes})
    else:
        print_submission(submission)
        print(f"next: {command_text('status', shown_path(run_dir))}")
    return 0


def submit_spec(options: argparse.Namespace) -> Submission:
    """Load and submit; print each job when the scheduler accepts it."""
    from slurm_jobs.commands.spec_reading.read_spec import load
    from slurm_jobs.commands.submit import submit

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit, to_submit=True)
    return submit(loaded, on_job=job_printer(options))


def print_submission(submission: Submission) -> None:
    """Print warnings about the spec, differences from it, and the run's folder."""
    for note in submission.notes:
        print(f"note: {short_note(note)}")
    print(f"run folder: {shown_path(submission.paths.run_dir)}", flush=True)


def job_printer(options: argparse.Namespace) -> Callable[[SubmittedJob], None]:
    """Return a function that prints a job that the scheduler accepted; not before JSON."""

    def print_job(job: SubmittedJob) -> None:
        tasks = f" ({job.num_tasks} tasks)" if job.num_tasks > 1 else ""
        print(f"submitted {job.stage}{tasks} as job {job.job_id}", flush=True)

    return (lambda _job: None) if options.json else print_job


def job_values(job: SubmittedJob) -> dict[str, Any]:
    """Return a submitted job as JSON values."""
    return {"stage": job.stage, "job_id": job.job_id, "num_tasks": job.num_tasks}
