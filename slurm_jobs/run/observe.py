"""Status of runs from their records and schedulers; needs no spec model.

A command that only displays may use an answer that is some seconds old. A command that acts queries
again, which is the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_jobs.run.doubts import forgotten_note
from slurm_jobs.run.home import with_doubts
from slurm_jobs.run.kept_answers import keep_answer, kept_answer, scope_of
from slurm_jobs.run_folder.ledger import intents, latest_intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta, read_run
from slurm_jobs.run_folder.run_values import RunRecords, submitted_jobs
from slurm_jobs.schedulers import scheduler_named
from slurm_jobs.schedulers.protocol import Answer, Question, Scheduler
from slurm_jobs.status.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import completed_slices


def scheduler_of(paths: RunPaths) -> Scheduler:
    """Return the scheduler that a run was submitted to."""
    meta = read_meta(paths)
    return scheduler_named(meta.scheduler, paths.run_dir, max_cpus=meta.max_cpus)


def status_of(run_dir: Path, *, fresh: bool = True, acts: bool = False) -> RunStatus:
    """Return the status of a run, from its records and one query of the scheduler.

    The records are read after the query. A job writes its record before it ends, so a job that has
    ended according to the scheduler has its record here.

    Args:
        run_dir: the run's folder.
        fresh: False reuses an answer of some seconds ago if there is one, see `FRESH_S`; only
            for display, never before an action.
        acts: True if the status decides which jobs are cancelled, see `Question`.
    """
    run = read_run(run_dir)
    answer = answers({run_dir: run}, fresh=fresh, acts=acts)[run_dir]
    return reconcile(read_run(run_dir) if answer.asked_unix_s else run, answer)


def answer_of(run_dir: Path) -> Answer:
    """Return the answer that `status` would use now; only for display, never before an action."""
    return answers({run_dir: read_run(run_dir)}, fresh=False)[run_dir]


def answers(
    runs: Mapping[Path, RunRecords],
    *,
    fresh: bool,
    acts: bool = False,
    even_complete: bool = False,
) -> dict[Path, Answer]:
    """Return the schedulers' answers by run folder; all runs on Slurm share one query.

    A run without jobs gets an empty answer, and so does one whose records prove all of it complete,
    unless `even_complete`: a job lives on for a moment after its last record.
    """
    by_run: dict[Path, Answer] = {}
    on_slurm: dict[Path, RunRecords] = {}
    for run_dir, run in runs.items():
        kept = None
        if not run.jobs or (is_proven_complete(run) and not even_complete):
            kept = Answer()
        elif run.meta.scheduler == "local":  # reads small files, and needs no cache
            kept = _ask({run_dir: run})
        elif not fresh:
            kept = kept_answer(RunPaths(run_dir).scheduler_answer, scope_of(run.intents))
        if kept is None:
            on_slurm[run_dir] = run
        else:
            by_run[run_dir] = kept
    if on_slurm:
        shared = _ask(on_slurm, acts=acts)
        parts = {run_dir: _part_of(shared, run) for run_dir, run in on_slurm.items()}
        doubtful = with_doubts(on_slurm, parts)
        for run_dir, run in on_slurm.items():
            by_run[run_dir] = doubtful.get(run_dir, parts[run_dir])
            if run_dir not in doubtful:  # not for users who query the right cluster
                path = RunPaths(run_dir).scheduler_answer
                keep_answer(path, scope_of(run.intents), by_run[run_dir])
    return {run_dir: by_run[run_dir] for run_dir in runs}


def _ask(runs: Mapping[Path, RunRecords], *, acts: bool = False) -> Answer:
    """Query the scheduler once for runs of the same scheduler."""
    question = question_about(list(runs.values()), acts=acts)
    return scheduler_of(RunPaths(next(iter(runs)))).query(question)


def question_about(runs: Sequence[RunRecords], *, acts: bool) -> Question:
    """Return the question about the jobs of runs; `acts` as in `Question`."""
    open_jobs: dict[str, float] = {}
    for run in runs:
        for stage in run.stages:
            newest = latest_intents(run.intents, stage.name)
            completed = completed_slices(run.records[stage.name], newest)
            for index, intent in newest.items():
                if index not in completed:
                    submitted_unix_s = intent.submitted_unix_s or intent.time_unix_s
                    open_jobs[intent.job_name] = submitted_unix_s
    return Question(
        jobs={name: job_id for run in runs for name, job_id in run.jobs.items()},
        since_unix_s=min(run.meta.created_unix_s for run in runs),
        # Runs of earlier versions have no uid.
        uids=frozenset(os.getuid() if run.meta.uid is None else run.meta.uid for run in runs),
        open_jobs=open_jobs,
        acts=acts,
    )


def _part_of(answer: Answer, run: RunRecords) -> Answer:
    """Return the part of an answer that is about one of the runs."""
    jobs = {intent.job for intent in run.intents}
    doubts = {key: doubt for key, doubt in answer.doubts.items() if key.job in jobs}
    forgotten = forgotten_note(run, doubts)
    return Answer(
        tasks={key: task for key, task in answer.tasks.items() if key.job in jobs},
        lagging={key: state for key, state in answer.lagging.items() if key.job in jobs},
        doubts=doubts,
        problems=answer.problems,
        notes=answer.notes if forgotten is None else (*answer.notes, forgotten),
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


def accounting_of(run_dir: Path, *, stage: str | None = None) -> Answer:
    """Return the scheduler's accounting of a run's jobs, or of those of one stage."""
    paths = RunPaths(run_dir)
    submitted = intents(read_ledger(paths.ledger_dir))
    jobs = submitted_jobs(i for i in submitted if stage in {None, i.stage})
    if not jobs:
        return Answer()
    meta = read_meta(paths)
    uids = frozenset() if meta.uid is None else frozenset({meta.uid})
    question = Question(jobs=jobs, since_unix_s=meta.created_unix_s, uids=uids)
    return scheduler_of(paths).accounting(question)
