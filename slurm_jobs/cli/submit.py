"""Verb submit, and the choice between a spec and a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import (
    add_spec,
    command_text,
    print_json,
    short_note,
    shown_path,
)
from slurm_jobs.shared.errors import InputError

if TYPE_CHECKING:
    from slurm_jobs.commands.submit import Submission
    from slurm_jobs.run.submission import SubmittedJob


# `slurm-jobs submit SPEC`: submit all jobs of a spec and return at once.


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)


def run_submit(options: argparse.Namespace) -> int:
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
    from slurm_jobs.commands.submit import load, submit

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


# Runs of `probe` and `tune`, whose result is printed again.


def given_run(target: str, of_spec: Mapping[str, Any], verb: str) -> Path | None:
    """Return the run whose result is printed again; None if a spec was given.

    Args:
        target: A spec's file, or what `find_run` takes.
        of_spec: Values of options that need a spec, by name; false if not given.
        verb: Verb for the message: what naming the spec's file does.

    Raises:
        InputError: there is no such run, or an option for a spec was given.
    """
    from slurm_jobs.commands.find_run import SPEC_SUFFIXES, find_run

    path = Path(target)
    if path.suffix in SPEC_SUFFIXES or path.is_file():
        return None
    if wrong := [name for name, value in of_spec.items() if value]:
        message = (
            f"{wrong[0]} is for a spec, and {target} is a run, whose result is printed again; "
            f"name the spec's file to {verb} again"
        )
        raise InputError(message)
    return find_run(target)
