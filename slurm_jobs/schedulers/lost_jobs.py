"""Jobs of this user on Slurm whose run folder does not exist.

The folder was removed while they were queued or running, or its file system is not mounted here.
Only Slurm knows of such jobs: it has their names and the paths of their batch scripts.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.paths import RUN_STAMP, RunPaths
from slurm_jobs.schedulers.job_rows import SQUEUE_FORMAT, split_rows
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.schedulers.slurm_commands import ask

_NUM_FIELDS = SQUEUE_FORMAT.count("|") + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LostJob:
    """Job that is queued or running, and whose run folder does not exist."""

    job: JobKey
    """The whole job, of an array too."""
    stage: str
    state: str
    """State in Slurm's word; of an array, that of one element."""
    run_dir: Path


def lost_jobs() -> list[LostJob]:
    """Return them, sorted by run and job; none if this machine has no Slurm.

    Raises:
        SchedulerError: squeue could not be queried.
    """
    if shutil.which("squeue") is None:
        return []
    text = ask(["squeue", "--all", "--me", "-o", SQUEUE_FORMAT])
    jobs: dict[JobKey, LostJob] = {}
    is_there: dict[Path, bool] = {}
    for row in split_rows(text, _NUM_FIELDS, "squeue"):
        job = _job_of(row)
        if job is None or job.job in jobs:
            continue
        if job.run_dir not in is_there:
            is_there[job.run_dir] = _is_there(job.run_dir)
        if not is_there[job.run_dir]:
            jobs[job.job] = job
    return sorted(jobs.values(), key=lambda job: (job.run_dir, int(job.job.job_id)))


def _job_of(row: list[str]) -> LostJob | None:
    """Return the job of a row of squeue if a run submitted it and it has not ended."""
    _, plain_id, state, _, _, _, _, name, command = row
    script = PurePosixPath(command)  # RUN/jobs/TOKEN/submission.sh
    folders = script.parents
    if len(folders) < 4 or folders[1].name != "jobs" or state not in LIVING_STATES:
        return None
    run_dir, end = Path(folders[2]), f".{folders[0].name}"
    start = f"{RUN_STAMP.sub('', run_dir.name)}."
    if not plain_id.isdecimal() or not name.startswith(start) or not name.endswith(end):
        return None
    stage = name.removeprefix(start).removesuffix(end)
    return LostJob(job=JobKey(name, plain_id), stage=stage, state=state, run_dir=run_dir)


def _is_there(run_dir: Path) -> bool:
    """Check whether a run folder is there, or may be: one that cannot be read counts."""
    try:
        RunPaths(run_dir).run_json.stat()
    except OSError as error:
        return error.errno not in {errno.ENOENT, errno.ENOTDIR}
    return True


def jobs_by_run(jobs: Iterable[LostJob]) -> dict[Path, list[LostJob]]:
    """Return the jobs by the folder of their run."""
    runs: dict[Path, list[LostJob]] = {}
    for job in jobs:
        runs.setdefault(job.run_dir, []).append(job)
    return runs
