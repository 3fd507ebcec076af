"""Cancel a run's jobs, or those of one stage."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.common.errors import InputError, RunFailedError, SchedulerError
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.model import RunRecords, stages_called
from slurm_jobs.run.observe import scheduler_of, status_of
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.resume import adopt_lost_jobs
from slurm_jobs.run.store import read_run
from slurm_jobs.run.turns import submitting
from slurm_jobs.spec.validation import did_you_mean


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    The name that a stage with a matrix has in the file means all of its combinations.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        InputError: there is no such stage.
        SchedulerError: the scheduler could not be asked.
    """
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    origins = {s.name: s.origin for s in run.stages}
    stages = list(origins) if stage is None else stages_called(stage, origins)
    if not stages:
        known = f"(stages: {', '.join(origins)})"
        near = did_you_mean(stage or "", [*origins, *origins.values()])
        message = f"run {run.meta.run_id} has no stage `{stage}`{near} {known}"
        raise InputError(message)
    try:
        return _cancel(paths, run, stages)
    except OSError as error:  # a full disk must not keep anybody from ending jobs
        ids = _ids(_to_cancel(run_dir, stages))
        scheduler_of(paths).cancel(ids)
        message = (
            f"the scheduler was asked to cancel {' '.join(ids) or 'nothing'}, but this could not "
            f"be written down: {error}"
        )
        raise RunFailedError(message) from error


def _cancel(paths: RunPaths, run: RunRecords, stages: list[str]) -> list[str]:
    scheduler = scheduler_of(paths)
    with submitting(paths):
        adopt_lost_jobs(paths, run, scheduler)
        chosen = _to_cancel(paths.run_dir, stages)
        for intent in chosen:
            append_entry(paths.ledger_dir, "cancelled", intent.token, {})
        ids = _ids(chosen)
        if ids:
            scheduler.cancel(ids)
    return ids


def _ids(intents: list[Intent]) -> list[str]:
    return [intent.job_id for intent in intents if intent.job_id is not None]


def _to_cancel(run_dir: Path, stages: list[str]) -> list[Intent]:
    """Newest intents of slices that have not ended.

    One whose job was not found counts: should it still come, it does no work.
    """
    status = status_of(run_dir)
    run = read_run(run_dir)
    chosen: dict[str, Intent] = {}
    for name in stages:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            going = part.status in {"running", "waiting", "unknown"} or (
                part.status == "stranded" and part.may_live
            )
            intent = newest.get(part.slice_index)
            if going and intent is not None and intent.refused is None:
                chosen[intent.token] = intent
    if not status.knows_the_living and not any(intent.job_id for intent in chosen.values()):
        raise SchedulerError("; ".join(status.problems))
    return list(chosen.values())
