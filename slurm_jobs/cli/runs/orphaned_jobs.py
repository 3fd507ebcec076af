"""Jobs whose run folder was removed: `runs` names them, and `cancel` ends them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import InputError, SchedulerError
from slurm_jobs.cli.terminal.shown_paths import command_text

if TYPE_CHECKING:
    from slurm_jobs.schedulers.lost_jobs import LostJob


def lost_jobs_if_known() -> list[LostJob]:
    """Return all such jobs of this user; none if Slurm does not answer."""
    from slurm_jobs.schedulers.lost_jobs import lost_jobs

    try:
        return lost_jobs()
    except SchedulerError:
        return []


def lost_lines(jobs: Sequence[LostJob]) -> list[str]:
    """Return a line for each run folder that does not exist: its jobs, and what ends them."""
    from slurm_jobs.schedulers.lost_jobs import jobs_by_run

    return [
        f"{lost_text(run_dir, of_run)}. To end them: {command_text('cancel', str(run_dir))}"
        for run_dir, of_run in jobs_by_run(jobs).items()
    ]


def lost_values(jobs: Sequence[LostJob]) -> list[dict[str, str]]:
    """Return the jobs as JSON values."""
    return [
        {
            "run_dir": str(job.run_dir),
            "stage": job.stage,
            "job_id": job.job.job_id,
            "state": job.state,
        }
        for job in jobs
    ]


def lost_text(run_dir: Path, jobs: Sequence[LostJob]) -> str:
    """Return that the run folder does not exist, and which jobs of it have not ended."""
    listed = ", ".join(f"{job.job.job_id} ({job.stage}, {job.state})" for job in jobs)
    return (
        f"the run folder {run_dir} does not exist (it was removed, or its file system is not "
        f"mounted here), and jobs of it have not ended: {listed}"
    )


def jobs_of_lost_run(text: str) -> list[LostJob]:
    """Return the jobs of the run that a user names, whose folder does not exist.

    Args:
        text: folder of the run, its id, or the start of the id.

    Raises:
        InputError: several runs begin with `text`.
    """
    from slurm_jobs.schedulers.lost_jobs import jobs_by_run

    path = Path(text).absolute()
    runs = jobs_by_run(lost_jobs_if_known())
    if path in runs:
        return runs[path]
    begin_so = [run_dir for run_dir in runs if text and run_dir.name.startswith(text)]
    if len(begin_so) > 1:
        names = ", ".join(map(str, begin_so))
        message = f"several runs whose folders do not exist begin with `{text}`: {names}; name one"
        raise InputError(message)
    return runs[begin_so[0]] if begin_so else []
