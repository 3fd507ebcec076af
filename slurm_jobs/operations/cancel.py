"""Cancel a run's jobs, or those of one stage."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.common.errors import InputError, SchedulerError
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.observe import scheduler_of, status_of
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_run


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        InputError: there is no such stage.
        SchedulerError: the scheduler could not be asked.
    """
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    names = [s.name for s in run.stages]
    if stage is not None and stage not in names:
        message = f"run {run.meta.run_id} has no stage `{stage}` (stages: {', '.join(names)})"
        raise InputError(message)
    status = status_of(run_dir)
    chosen: dict[str, Intent] = {}
    for name in names if stage is None else [stage]:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            if part.status in {"running", "waiting", "stranded", "unknown"} and part.job_id:
                intent = newest[part.slice_index]
                chosen[intent.token] = intent
    ids = [intent.job_id for intent in chosen.values() if intent.job_id is not None]
    if status.problems and not ids:
        raise SchedulerError("; ".join(status.problems))
    for token in chosen:
        append_entry(paths.ledger_dir, "cancelled", token, {})
    if ids:
        scheduler_of(paths).cancel(ids)
    return ids
