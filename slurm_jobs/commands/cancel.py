"""Cancellation of a run's jobs, or of those of one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.errors import FileError, SchedulerError
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run.doubts import doubts_text
from slurm_jobs.run.home import refuse_elsewhere
from slurm_jobs.run.observe import scheduler_of, status_of
from slurm_jobs.run.prepare_resume import adopt_lost_jobs
from slurm_jobs.run_folder.ledger import Intent, append_entry, latest_intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from slurm_jobs.run_folder.run_values import RunRecords, stages_named
from slurm_jobs.run_folder.submission_lock import is_perhaps_submitting, submitting
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import SliceStatus


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    The name that a stage with a matrix has in the file means all of its combinations.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        InputError: there is no such stage, or the run's jobs belong to another cluster or user.
        SchedulerError: the scheduler could not be queried, or did not say whether some jobs live;
            their cancellation is recorded, and they do no work if they still start.
        FileError: the jobs were cancelled, and this could not be recorded.
    """
    paths, run, stages = _selected(run_dir, stage)
    try:
        scheduler = scheduler_of(paths)
        with submitting(paths):
            adopt_lost_jobs(paths, run, scheduler)
            chosen = _to_cancel(run_dir, stages)
            for intent in chosen.intents:
                append_entry(paths.ledger_dir, "cancelled", intent.token, {})
            if chosen.jobs:
                scheduler.cancel(chosen.jobs)
    except OSError as error:  # a full disk must not prevent ending jobs
        jobs = _to_cancel(run_dir, stages).jobs
        scheduler_of(paths).cancel(jobs)
        message = (
            f"the scheduler was asked to cancel {_ids(jobs)}, but this could not "
            f"be recorded: {error}"
        )
        raise FileError(message) from error
    if chosen.silence:
        message = (
            f"cancelled: {_ids(chosen.jobs)}. It is unknown whether "
            f"{' '.join(chosen.unseen)} still run, and they were not cancelled "
            f"({chosen.silence}); if they start, they do no work. Run the same command again "
            "when Slurm answers"
        )
        raise SchedulerError(message)
    return [job.job_id for job in chosen.jobs]


def _ids(jobs: Sequence[JobKey]) -> str:
    return " ".join(job.job_id for job in jobs) or "nothing"


def is_anything_to_cancel(run_dir: Path, *, stage: str | None = None) -> bool:
    """Check whether `cancel` would find unfinished work; read-only.

    Raises:
        InputError: see `cancel`.
        SchedulerError: the scheduler could not be queried.
    """
    paths, _, stages = _selected(run_dir, stage)
    # Another command's pending submission is not visible yet; `cancel` names that command.
    return is_perhaps_submitting(read_ledger(paths.ledger_dir)) or bool(
        _to_cancel(run_dir, stages).intents
    )


def _selected(run_dir: Path, stage: str | None) -> tuple[RunPaths, RunRecords, list[str]]:
    """Return a run that this user may change here, and its selected stages."""
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    origins = {s.name: s.origin for s in run.stages}
    stages = list(origins)
    if stage is not None:
        stages = stages_named(stage, origins, where=f"run {run.meta.run_id}: ")
    refuse_elsewhere(paths, run.meta)
    return paths, run, stages


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chosen:
    """Jobs to cancel."""

    intents: list[Intent]
    """Intents of all work that may be unfinished: if such a job still starts, it does no work."""
    jobs: list[JobKey]
    """Jobs that the scheduler has just reported alive. Another job with such an id may belong to
    another user by now: Slurm reuses ids."""
    unseen: list[str]
    """Ids of the other jobs that may be unfinished."""
    silence: str
    """Reason why it is unknown whether the unseen jobs are alive; empty if that is known."""


def _to_cancel(run_dir: Path, stages: list[str]) -> _Chosen:
    """Return the newest intents of unfinished slices."""
    status = status_of(run_dir, acts=True)
    run = read_run(run_dir)
    chosen: dict[str, Intent] = {}
    living: set[str] = set()
    for name in stages:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            is_unfinished = part.status in {"running", "waiting", "unknown"} or (
                part.status == "stranded" and part.state in LIVING_STATES
            )
            intent = newest.get(part.slice_index)
            if is_unfinished and intent is not None and intent.refused is None:
                chosen[intent.token] = intent
                # The local scheduler's ids are unique to the run.
                is_confirmed = part.state in LIVING_STATES and not _is_doubted(part, status)
                if is_confirmed or run.meta.scheduler == "local":
                    living.add(intent.token)
    jobs = {token: intent.job for token, intent in chosen.items() if intent.job is not None}
    silence = "" if status.knows_the_living else "; ".join(status.problems)
    if status.doubts and not silence:
        silence = doubts_text(run, status.doubts, status.problems)
    if silence and not jobs:
        raise SchedulerError(silence)
    unseen = [job.job_id for token, job in jobs.items() if token not in living]
    return _Chosen(
        intents=list(chosen.values()),
        jobs=[job for token, job in jobs.items() if token in living],
        unseen=unseen,
        silence=silence if unseen else "",
    )


def _is_doubted(part: SliceStatus, status: RunStatus) -> bool:
    """Check whether it is open if the job of a slice lives: another job may have its id."""
    return part.job is not None and not status.doubts.keys().isdisjoint((part.job, part.job.job))
