"""Cancel a run's jobs, or those of one stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.common.errors import FileError, SchedulerError
from slurm_jobs.run.home import refuse_elsewhere
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.ledger import append_entry, read_ledger
from slurm_jobs.run.model import RunRecords, stages_named
from slurm_jobs.run.observe import scheduler_of, status_of
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.resume import adopt_lost_jobs
from slurm_jobs.run.store import read_run
from slurm_jobs.run.turns import is_perhaps_submitting, submitting
from slurm_jobs.schedulers.states import LIVING_STATES


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    The name that a stage with a matrix has in the file means all of its combinations.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        InputError: there is no such stage, or the run's jobs are another cluster's or user's.
        SchedulerError: the scheduler could not be asked, or did not say whether some jobs live;
            their cancellation is recorded, and they do no work if they still start.
        FileError: the jobs were cancelled, and this could not be recorded.
    """
    paths, run, stages = _meant(run_dir, stage)
    try:
        return _cancel(paths, run, stages)
    except OSError as error:  # a full disk must not prevent ending jobs
        ids = _to_cancel(run_dir, stages).ids
        scheduler_of(paths).cancel(ids)
        message = (
            f"the scheduler was asked to cancel {' '.join(ids) or 'nothing'}, but this could not "
            f"be recorded: {error}"
        )
        raise FileError(message) from error


def is_anything_to_cancel(run_dir: Path, *, stage: str | None = None) -> bool:
    """Check whether `cancel` would find unfinished work; read-only.

    Raises:
        InputError: see `cancel`.
        SchedulerError: the scheduler could not be asked.
    """
    paths, _, stages = _meant(run_dir, stage)
    # Another command's pending submission is not visible yet; `cancel` names that command.
    return is_perhaps_submitting(read_ledger(paths.ledger_dir)) or bool(
        _to_cancel(run_dir, stages).intents
    )


def _meant(run_dir: Path, stage: str | None) -> tuple[RunPaths, RunRecords, list[str]]:
    """Return the run, on which this user may act here, and its selected stages."""
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    origins = {s.name: s.origin for s in run.stages}
    stages = list(origins)
    if stage is not None:
        stages = stages_named(stage, origins, where=f"run {run.meta.run_id}: ")
    refuse_elsewhere(paths, run.meta)
    return paths, run, stages


def _cancel(paths: RunPaths, run: RunRecords, stages: list[str]) -> list[str]:
    scheduler = scheduler_of(paths)
    with submitting(paths):
        adopt_lost_jobs(paths, run, scheduler)
        chosen = _to_cancel(paths.run_dir, stages)
        for intent in chosen.intents:
            append_entry(paths.ledger_dir, "cancelled", intent.token, {})
        if chosen.ids:
            scheduler.cancel(chosen.ids)
    if chosen.silence:
        message = (
            f"cancelled: {' '.join(chosen.ids) or 'nothing'}. It is unknown whether "
            f"{' '.join(chosen.unseen)} still run, and they were not cancelled "
            f"({chosen.silence}); if they start, they do no work. Run the same command again "
            "when squeue answers"
        )
        raise SchedulerError(message)
    return chosen.ids


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chosen:
    """Jobs to cancel."""

    intents: list[Intent]
    """Intents of all work that may be unfinished: if such a job still starts, it does no work."""
    ids: list[str]
    """Jobs that the scheduler has just reported alive, by id and name. Another job with such an id
    may belong to another user by now: Slurm reuses ids."""
    unseen: list[str]
    """Ids of the other jobs."""
    silence: str
    """Reason why it is unknown whether those are alive; empty if there are none, or they have
    ended."""


def _to_cancel(run_dir: Path, stages: list[str]) -> _Chosen:
    """Return the newest intents of unfinished slices."""
    status = status_of(run_dir)
    run = read_run(run_dir)
    chosen: dict[str, Intent] = {}
    living: set[str] = set()
    for name in stages:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            going = part.status in {"running", "waiting", "unknown"} or (
                part.status == "stranded" and part.state in LIVING_STATES
            )
            intent = newest.get(part.slice_index)
            if going and intent is not None and intent.refused is None:
                chosen[intent.token] = intent
                # The local scheduler's ids are unique to the run.
                if part.state in LIVING_STATES or run.meta.scheduler == "local":
                    living.add(intent.token)
    silence = "" if status.knows_the_living else "; ".join(status.problems)
    if silence and not any(intent.job_id for intent in chosen.values()):
        raise SchedulerError(silence)
    unseen = _ids(intent for token, intent in chosen.items() if token not in living)
    return _Chosen(
        intents=list(chosen.values()),
        ids=_ids(intent for token, intent in chosen.items() if token in living),
        unseen=unseen,
        silence=silence if unseen else "",
    )


def _ids(intents: Iterable[Intent]) -> list[str]:
    return [intent.job_id for intent in intents if intent.job_id is not None]
