"""Looks at a run: its records, and what its scheduler says. Needs no spec model."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.reconcile import RunStatus, reconcile
from slurm_jobs.run.intents import intents
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_meta, read_run
from slurm_jobs.schedulers import scheduler_named
from slurm_jobs.schedulers.protocol import Answer, Scheduler


def scheduler_of(paths: RunPaths) -> Scheduler:
    """The scheduler that a run was submitted to."""
    meta = read_meta(paths)
    return scheduler_named(meta.scheduler, paths.run_dir, max_cpus=meta.max_cpus)


def status_of(run_dir: Path) -> RunStatus:
    """Status of a run: its records, and one question to the scheduler.

    The records are read after the scheduler was asked: a job writes its record
    before it ends, so a job that is said to have ended has its record here.
    """
    run = read_run(run_dir)
    ids = run.job_ids
    if not ids:
        return reconcile(run, Answer())
    scheduler = scheduler_of(RunPaths(run_dir))
    answer = scheduler.query(ids, since_unix_s=run.meta.created_unix_s)
    return reconcile(read_run(run_dir), answer)


def accounting_of(run_dir: Path) -> Answer:
    """What the scheduler accounted for a run's jobs."""
    paths = RunPaths(run_dir)
    ids = [i.job_id for i in intents(read_ledger(paths.ledger_dir)) if i.job_id is not None]
    if not ids:
        return Answer()
    return scheduler_of(paths).accounting(ids, since_unix_s=read_meta(paths).created_unix_s)
