"""Verb cancel: end all of a run's jobs, or those of one stage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import FileError, InputError
from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.confirm import confirm
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.runs.orphaned_jobs import jobs_of_lost_run, lost_text
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text

if TYPE_CHECKING:
    from slurm_jobs.schedulers.lost_jobs import LostJob

NOTHING = "nothing to cancel: no job is queued or running"


def add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("--stage", help="only this stage's jobs")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run_cancel(options: argparse.Namespace) -> int:
    """Check whether there is anything to cancel, ask once, then cancel.

    A run whose folder was removed may still have jobs.
    """
    from slurm_jobs.commands.cancel import cancel, is_anything_to_cancel

    try:
        run_dir, stage = named_run(options.run), options.stage
    except (InputError, FileError):
        lost = jobs_of_lost_run(options.run or "")
        if not lost:
            raise
        return _cancel_lost(lost, options)
    ids: list[str] = []
    message = NOTHING
    if options.yes or is_anything_to_cancel(run_dir, stage=stage):
        what = f"stage `{stage}` of {run_dir.name}" if stage else run_dir.name
        if not options.yes and not confirm(
            f"cancel {what}?", without_terminal=f"cancel asks before it ends {what}"
        ):
            message = "nothing was cancelled"
        elif ids := cancel(run_dir, stage=stage):
            message = _cancelled_text(run_dir, ids)
    _print_end(options, run_dir, ids, message)
    return 0


def _cancel_lost(jobs: Sequence[LostJob], options: argparse.Namespace) -> int:
    """Say that the run folder does not exist, ask once, and cancel its jobs."""
    from slurm_jobs.schedulers.slurm import SlurmScheduler

    run_dir = jobs[0].run_dir
    chosen = [job for job in jobs if options.stage in {None, job.stage}]
    if not chosen:
        stages = ", ".join(dict.fromkeys(job.stage for job in jobs))
        message = f"no job of stage `{options.stage}` is queued or running (stages: {stages})"
        raise InputError(message)
    if not options.json:
        print(lost_text(run_dir, chosen))
    count = number_text(len(chosen), "job")
    ids: list[str] = []
    message = "nothing was cancelled"
    if options.yes or confirm(
        f"cancel {count} of {run_dir.name}?", without_terminal=f"cancel asks before it ends {count}"
    ):
        SlurmScheduler().cancel([job.job for job in chosen])
        ids = [job.job.job_id for job in chosen]
        message = _cancelled_text(run_dir, ids)
    _print_end(options, run_dir, ids, message)
    return 0


def _cancelled_text(run_dir: Path, ids: Sequence[str]) -> str:
    return f"cancelled {'jobs' if len(ids) > 1 else 'job'} {' '.join(ids)} of {run_dir.name}"


def _print_end(
    options: argparse.Namespace, run_dir: Path, ids: Sequence[str], message: str
) -> None:
    if options.json:
        print_json({"run_dir": str(run_dir), "cancelled": list(ids)})
    else:
        print(message)
