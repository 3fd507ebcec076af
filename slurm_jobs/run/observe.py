"""Status of runs from their records and schedulers; needs no spec model.

A command that only displays may use an answer that is some seconds old. A command that acts queries
again, which is the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_jobs.reconcile import RunStatus, completed_slices, reconcile
from slurm_jobs.run.answer_cache import keep_answer, kept_answer, scope_of
from slurm_jobs.run.home import with_doubts
from slurm_jobs.run.intents import intents, latest_intents
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.model import RunRecords, submitted_jobs
from slurm_jobs.run.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_meta, read_run
from slurm_jobs.schedulers import scheduler_named
from slurm_jobs.schedulers.protocol import Answer, Question, Scheduler, is_of


def scheduler_of(paths: RunPaths) -> Scheduler:
    """Return the scheduler that a run was submitted to."""
    meta = read_meta(paths)
    return scheduler_named(meta.scheduler, paths.run_dir, max_cpus=meta.max_cpus)


def status_of(run_dir: Path, *, fresh: bool = True) -> RunStatus:
    """Return the status of a run, from its records and one query of the scheduler.

    The records are read after the query. A job writes its record before it ends, so a job that has
    ended according to the scheduler has its record here.

    Args:
        run_dir: the run's folder.
        fresh: False reuses an answer of some seconds ago if there is one, see `answer_cache`; only
            for display, never before an action.
    """
    run = read_run(run_dir)
    answer = answers({run_dir: run}, fresh=fresh)[run_dir]
    return reconcile(read_run(run_dir) if answer.asked_unix_s else run, answer)


def answer_of(run_dir: Path) -> Answer:
    """Return the answer that `status` would use now; only for display, never before an action."""
    return answers({run_dir: read_run(run_dir)}, fresh=False)[run_dir]


def answers(runs: Mapping[Path, RunRecords], *, fresh: bool) -> dict[Path, Answer]:
    """Return the schedulers' answers by run folder; all runs on Slurm share one query.

    A run without jobs, or whose records prove all of it complete, gets an empty answer.
    """
    found: dict[Path, Answer] = {}
    on_slurm: dict[Path, RunRecords] = {}
    for run_dir, run in runs.items():
        kept = None
        if not run.jobs or is_proven_complete(run):
            kept = Answer()
        elif run.meta.scheduler == "local":  # reads small files, and needs no cache
            kept = _ask({run_dir: run})
        elif not fresh:
            kept = kept_answer(RunPaths(run_dir).scheduler_answer, scope_of(run.intents))
        if kept is None:
            on_slurm[run_dir] = run
        else:
            found[run_dir] = kept
    if on_slurm:
        shared = _ask(on_slurm)
        parts = {run_dir: _part_of(shared, run) for run_dir, run in on_slurm.items()}
        doubtful = with_doubts(on_slurm, parts)
        for run_dir, run in on_slurm.items():
            found[run_dir] = doubtful.get(run_dir, parts[run_dir])
            if run_dir not in doubtful:  # not for users who query the right cluster
                path = RunPaths(run_dir).scheduler_answer
                keep_answer(path, scope_of(run.intents), found[run_dir])
    return {run_dir: found[run_dir] for run_dir in runs}


def _ask(runs: Mapping[Path, RunRecords]) -> Answer:
    """Query the scheduler once for runs of the same scheduler."""
    question = Question(
        jobs={name: job_id for run in runs.values() for name, job_id in run.jobs.items()},
        since_unix_s=min(run.meta.created_unix_s for run in runs.values()),
        uids=_uids(runs.values()),
    )
    return scheduler_of(RunPaths(next(iter(runs)))).query(question)


def _uids(runs: Iterable[RunRecords]) -> frozenset[int]:
    """Return the owners of the jobs; for runs of earlier versions the current user."""
    told = [run.meta.uid for run in runs]
    return frozenset(os.getuid() if uid is None else uid for uid in told)


def _part_of(answer: Answer, run: RunRecords) -> Answer:
    """Return the part of an answer that is about one of the runs."""
    jobs = run.jobs
    ids = set(jobs.values())
    return Answer(
        tasks={k: v for k, v in answer.tasks.items() if is_of(v, jobs)},
        lagging={k: v for k, v in answer.lagging.items() if k.partition("_")[0] in ids},
        problems=answer.problems,
        notes=answer.notes,
        asked_unix_s=answer.asked_unix_s,
        knows_the_living=answer.knows_the_living,
    )


def is_proven_complete(run: RunRecords) -> bool:
    """Check whether every slice of every stage has a completion record; needs no scheduler."""
    ages: dict[str, Ages] = {}
    for stage in run.stages:
        newest = latest_intents(run.intents, stage.name)
        completed = completed_slices(run.records[stage.name], newest)
        valid = completed - outdated_slices(stage.after, newest, ages)
        if not valid.issuperset(range(stage.num_slices)):  # it may have been longer before
            return False
        ages[stage.name] = ages_of(stage.after, newest, ages, stage.num_slices)
    return True


def accounting_of(run_dir: Path) -> Answer:
    """Return the scheduler's accounting of a run's jobs."""
    paths = RunPaths(run_dir)
    jobs = submitted_jobs(intents(read_ledger(paths.ledger_dir)))
    if not jobs:
        return Answer()
    meta = read_meta(paths)
    uids = frozenset() if meta.uid is None else frozenset({meta.uid})
    question = Question(jobs=jobs, since_unix_s=meta.created_unix_s, uids=uids)
    return scheduler_of(paths).accounting(question)
