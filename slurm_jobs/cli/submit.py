"""`slurm-jobs submit SPEC`: submit all jobs of a spec and return at once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    add_spec,
    command_text,
    print_json,
    short_note,
    shown_path,
)

if TYPE_CHECKING:
    from slurm_jobs.operations.submit import Submission
    from slurm_jobs.run.connections import SubmittedJob


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Submit, and print the run's folder and the next command."""
    submission = submit_spec(options)
    if options.json:
        print_json(submission_values(submission))
        return 0
    folder = shown_path(submission.paths.run_dir)
    print_notes(submission)
    print(f"run folder: {folder}")
    print(f"next: {command_text('status', folder)}")
    return 0


def submit_spec(options: argparse.Namespace) -> Submission:
    """Load and submit; print each job when the scheduler accepts it."""
    from slurm_jobs.operations.load import load
    from slurm_jobs.operations.submit import submit

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit, to_submit=True)
    return submit(loaded, on_job=(lambda _job: None) if options.json else print_job)


def print_notes(submission: Submission) -> None:
    """Print warnings about the spec, and differences from it."""
    for note in submission.notes:
        print(f"note: {short_note(note)}")


def print_job(job: SubmittedJob) -> None:
    """Print one line for a job that the scheduler accepted."""
    tasks = f" ({job.num_tasks} tasks)" if job.num_tasks > 1 else ""
    print(f"submitted {job.stage}{tasks} as job {job.job_id}")
    sys.stdout.flush()


def submission_values(submission: Submission) -> dict[str, Any]:
    """Return a submission as JSON values."""
    return {
        "run_id": submission.paths.run_dir.name,
        "run_dir": str(submission.paths.run_dir),
        "jobs": [job_values(job) for job in submission.jobs],
        "notes": list(submission.notes),
    }


def job_values(job: SubmittedJob) -> dict[str, Any]:
    """Return a submitted job as JSON values."""
    return {"stage": job.stage, "job_id": job.job_id, "num_tasks": job.num_tasks}
