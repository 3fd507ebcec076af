"""`slurm-jobs resume RUN`: run what is missing, and nothing else."""

from __future__ import annotations

import argparse

from slurm_jobs.cli.arguments import add_json, add_run, command_text, print_json, shown_path
from slurm_jobs.cli.submit import print_job, submission_values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Resume, and say what that meant."""
    from slurm_jobs.common.ranges import ranges_text
    from slurm_jobs.operations import resume
    from slurm_jobs.run.find import find_run

    run_dir = find_run(options.run)
    submission = resume(run_dir, on_job=(lambda _job: None) if options.json else print_job)
    preparation = submission.preparation
    assert preparation is not None
    if options.json:
        values = submission_values(submission)
        values["jobs"] = [
            {**done, "slices": ranges_text(job.slices), "why": job.why}
            for done, job in zip(values["jobs"], submission.plan.jobs, strict=True)
        ]
        print_json(
            {
                **values,
                "cancelled": list(preparation.cancel),
                "adopted": dict(preparation.adopted),
            }
        )
        return 0
    for stage, job_id in preparation.adopted.items():
        print(f"found the job of {stage} again: {job_id}")
    if preparation.cancel:
        print(
            f"cancelled, because they could not start as they were: {' '.join(preparation.cancel)}"
        )
    for job in submission.plan.jobs:
        slices = (
            f" slices {ranges_text(job.slices)}" if len(job.slices) > 1 or job.slices[0] else ""
        )
        print(f"runs again: {job.stage}{slices} ({job.why})")
    if not submission.jobs:
        print("nothing is missing; nothing was submitted")
    print(f"next: {command_text('status', shown_path(run_dir))}")
    return 0
