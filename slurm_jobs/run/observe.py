"""Status of runs from their records and schedulers; needs no spec model.

A command that only displays may use an answer that is some seconds old. A command that acts queries
again, which is the default.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.base.errors import FileError, InputError, SchedulerError
from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent, intents, latest_intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta, read_run
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords, submitted_jobs
from slurm_jobs.schedulers import scheduler_named
from slurm_jobs.schedulers.protocol import Answer, Question, Scheduler, SourceProblem
from slurm_jobs.status.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import Status, completed_slices

FRESH_S = 4.0
"""Seconds for which an answer is reused: a run costs at most one query in that time.

Slurm grants a user 2 requests a second where a site limits them (`slurm.conf`, rl_refill_rate), and
submitit#1759 describes a site whose limit was reached by polling alone. It is shorter than the 5 s
between two polls of `watch`, so that each poll of a single watcher is a new query.
"""
INCOMPLETE_FRESH_S = 1.0
"""Seconds for which an answer with a failed source is reused: the source may be back at once."""

_TASK_FIELDS = tuple(field.name for field in dataclasses.fields(TaskAccounting))


def scope_of(intents: Iterable[Intent]) -> list[list[Any]]:
    """Return the scope of an answer; an answer with another scope is not reused.

    The scope changes with every new job and every cancellation.
    """
    return [[intent.job_id, ranges_text(sorted(intent.cancelled_slices))] for intent in intents]


def keep_answer(path: Path, scope: list[list[Any]], answer: Answer) -> None:
    """Store an answer for all commands that only display; on failure the next one queries again.

    So many terminals that watch one run cause one query, not one each.
    """
    values = {
        "fields": _TASK_FIELDS,
        "scope": scope,
        "kept_unix_s": time.time(),
        "asked_unix_s": answer.asked_unix_s,
        "tasks": [[getattr(t, name) for name in _TASK_FIELDS] for t in answer.tasks.values()],
        "problems": answer.problems,
        "notes": answer.notes,
        "lagging": [[key.name, key.job_id, state] for key, state in answer.lagging.items()],
        "doubts": [[key.name, key.job_id, doubt] for key, doubt in answer.doubts.items()],
        "knows_the_living": answer.knows_the_living,
    }
    with suppress(OSError):
        write_text_atomic(path, json.dumps(values))


def kept_answer(path: Path, scope: list[list[Any]]) -> Answer | None:
    """Return the stored answer if it has exactly this scope and is fresh.

    Its age counts from its arrival, so that a controller that needs half a minute to answer is not
    queried by every terminal.
    """
    try:
        values = json.loads(read_bytes(path))
        if values["scope"] != scope or values["fields"] != list(_TASK_FIELDS):
            return None
        age_s = time.time() - values["kept_unix_s"]
        if not 0 <= age_s < (INCOMPLETE_FRESH_S if values["problems"] else FRESH_S):
            return None
        tasks = [
            TaskAccounting(**dict(zip(_TASK_FIELDS, row, strict=True))) for row in values["tasks"]
        ]
        return Answer(
            tasks={task.key: task for task in tasks},
            problems=tuple(SourceProblem(*problem) for problem in values["problems"]),
            notes=tuple(values["notes"]),
            asked_unix_s=float(values["asked_unix_s"]),
            knows_the_living=bool(values["knows_the_living"]),
            lagging={JobKey(name, job_id): state for name, job_id, state in values["lagging"]},
            doubts={JobKey(name, job_id): doubt for name, job_id, doubt in values["doubts"]},
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None  # missing, truncated, of another version, or no file of ours


def refuse_elsewhere(paths: RunPaths, meta: RunMeta) -> None:
    """Raise if the run or its jobs belong to another cluster or user, for verbs that act.

    A file system may serve several clusters, and root may read every user's run. There squeue
    answers without the run's jobs, which does not mean that they have ended.

    Raises:
        InputError: they do.
        SchedulerError: Slurm does not tell the name of this cluster.
    """
    uid = os.getuid()
    owner = anothers_folder(paths.run_dir)
    if owner and not _has_one_owner_for_all(paths.run_dir):
        message = (
            f"the folder of run {meta.run_id} is {owner}, and you are uid {uid}: what it says "
            "would run as you. Let its owner run the command, or submit the spec as yours"
        )
        raise InputError(message)
    if meta.scheduler != "slurm":
        return
    if meta.uid is not None and meta.uid != uid:
        message = (
            f"run {meta.run_id} is {meta.submitted_by}'s (uid {meta.uid}), and you are uid {uid}; "
            f"only they can query and end its jobs: run the command as {meta.submitted_by}. "
            f"If the run is yours by now and all its jobs have ended, write your uid as `uid` into "
            f"{paths.run_json}"
        )
        raise InputError(message)
    if meta.cluster_name is None:
        return
    here = _settings().get("ClusterName")
    if here is not None and here != meta.cluster_name:
        message = (
            f"run {meta.run_id} was submitted on the cluster `{meta.cluster_name}`, and this "
            f"machine belongs to `{here}`, whose Slurm knows nothing of its jobs: run the command "
            f"on a login node of `{meta.cluster_name}`. If that is what `{here}` was called "
            f"before, write `{here}` as `cluster_name` into {paths.run_json}"
        )
        raise InputError(message)


def anothers_folder(folder: Path) -> str:
    """Return the folder's owner, to follow `it is` in a message; empty if it is this user.

    Only the file system is trusted: the content of another user's folder may be forged.
    """
    owner = folder.stat().st_uid
    return "" if owner == os.getuid() else f"uid {owner}'s"


def _has_one_owner_for_all(folder: Path) -> bool:
    """Check whether the file system shows one owner for all files."""
    try:
        with tempfile.TemporaryFile(dir=folder) as written:
            return os.fstat(written.fileno()).st_uid == folder.stat().st_uid
    except OSError:
        return False


def anothers_run(paths: RunPaths) -> str:
    """Return the run's owner, to follow `it is` in a message; empty if it is this user.

    A run belongs to the owner of its folder, which may have changed, and to the uid in its
    `run.json`: some file systems show one owner for all files.
    """
    meta, uid, owner = read_meta(paths), os.getuid(), paths.run_dir.stat().st_uid
    if uid in {meta.uid, owner}:
        return ""
    return f"{meta.submitted_by}'s (uid {owner if meta.uid is None else meta.uid})"


def with_doubts(
    runs: Mapping[Path, RunRecords], answers: Mapping[Path, Answer]
) -> dict[Path, Answer]:
    """Return the answers that prove nothing about their run, each with the reason.

    The cluster is asked for its name only if it knows none of a run's jobs (one known id and name
    is sufficient proof) and the records show a job that has not ended. So a look costs one call of
    squeue and one of sacct. This is a third call in the rare case, one for any number of runs.
    Reading slurm.conf instead would save the call, but its location depends on the site, and with
    `--conf-server` there is no file.
    """
    unseen = {d: run for d, run in runs.items() if _is_unseen(run, answers[d])}
    if not unseen:
        return {}
    try:
        settings = _settings()
    except SchedulerError as error:
        reason = f"cannot determine which cluster this machine belongs to: {error}"
        doubt = SourceProblem("scontrol", reason)
        return {run_dir: _doubted(answers[run_dir], doubt) for run_dir in unseen}
    doubts = {run_dir: _doubt(run.meta, settings) for run_dir, run in unseen.items()}
    return {d: _doubted(answers[d], doubt) for d, doubt in doubts.items() if doubt}


def _is_unseen(run: RunRecords, answer: Answer) -> bool:
    """Check whether Slurm knows no job of this run although one of them may be alive."""
    meta = run.meta
    is_own = meta.uid in {None, os.getuid()}
    is_known = bool(answer.tasks or answer.lagging)
    if (meta.cluster_name is None and is_own) or is_known or not answer.knows_the_living:
        return False
    slices = (part for stage in reconcile(run, answer).stages for part in stage.slices)
    return any(part.status == "unknown" and part.job_id is not None for part in slices)


def _doubt(meta: RunMeta, settings: Mapping[str, str]) -> SourceProblem | None:
    """Return why this cluster's answer proves nothing about a run; None if it does."""
    here = settings.get("ClusterName")
    if meta.cluster_name is not None and here is not None and here != meta.cluster_name:
        reason = (
            f"it has the jobs of {meta.run_id}, and this machine belongs to `{here}`; look on a "
            f"login node of `{meta.cluster_name}`"
        )
        return SourceProblem(f"cluster `{meta.cluster_name}`", reason)
    hides_jobs = "jobs" in settings.get("PrivateData", "").split(",")
    if hides_jobs and meta.uid not in {None, os.getuid()} and os.getuid() != 0:
        reason = (
            f"this cluster shows jobs to their owner alone, and those of {meta.run_id} are "
            f"{meta.submitted_by}'s"
        )
        return SourceProblem("squeue", reason)
    return None


def _doubted(answer: Answer, doubt: SourceProblem) -> Answer:
    return replace(answer, problems=(*answer.problems, doubt), knows_the_living=False)


def _settings() -> Mapping[str, str]:
    from slurm_jobs.schedulers.slurm import cluster_settings

    return cluster_settings()


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
    return Answer(
        tasks={key: task for key, task in answer.tasks.items() if key.job in jobs},
        lagging={key: state for key, state in answer.lagging.items() if key.job in jobs},
        doubts={key: doubt for key, doubt in answer.doubts.items() if key.job in jobs},
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


View = TypeVar("View")

INTERVAL_S = {"local": 0.5, "slurm": 5.0}
"""Seconds between two polls; all users share Slurm's controller."""
PATIENCE_S = {"local": 2.0, "slurm": 60.0}
"""Seconds without living jobs and without proof of the outcome before a run counts as ended.

A record may reach this machine late (an NFS client takes a listing for fresh for up to `acdirmax`,
60 s), accounting lags, and a `submit` may be about to queue the next job.
"""
GOING: tuple[Status, ...] = ("running", "waiting")


def views_until_over(
    view: Callable[[], View],
    status_of: Callable[[View], RunStatus],
    with_problem: Callable[[View, str], View],
    scheduler: str,
) -> Iterator[View]:
    """Yield one status after another; the last one is of the ended run.

    While the run's files cannot be read (the file server is unreachable, a handle is stale), each
    is the last known status, with that problem.

    Raises:
        OSError: the files cannot be read at the first poll, or for `PATIENCE_S` at a later one.
    """
    read_s = going_s = time.monotonic()
    last: View | None = None
    while True:
        try:
            seen = last = view()
            read_s = time.monotonic()
        except (OSError, InputError) as error:  # the second if its `run.json` is missing
            if last is None or time.monotonic() - read_s >= PATIENCE_S[scheduler]:
                if last is None or isinstance(error, OSError):
                    raise
                message = f"the run's files: {error}"
                raise FileError(message) from error
            seen = with_problem(last, f"the run's files: {error}")
        status, now_s = status_of(seen), time.monotonic()
        if _lives(status) or not status.knows_the_living:
            going_s = now_s
        yield seen
        if is_over(status, open_for_s=now_s - going_s, patience_s=PATIENCE_S[scheduler]):
            return
        time.sleep(INTERVAL_S[scheduler])


def in_doubt(status: RunStatus, problem: str) -> RunStatus:
    """Return the status with a problem added: jobs that were alive may still be alive."""
    return replace(status, problems=(*status.problems, problem), knows_the_living=False)


def is_over(status: RunStatus, *, open_for_s: float, patience_s: float) -> bool:
    """Check whether the run has ended: it is complete, or no job is queued or running.

    A failed query about living jobs proves nothing. If no job is alive but the outcome is open,
    this must stay so for `patience_s`.
    """
    if status.status == "completed":
        return True
    if not status.knows_the_living or _lives(status):
        return False
    return status.status in {"failed", "cancelled", "stranded"} or open_for_s >= patience_s


def _lives(status: RunStatus) -> bool:
    return any(
        part.status in GOING and part.job_id is not None
        for stage in status.stages
        for part in stage.slices
    )
