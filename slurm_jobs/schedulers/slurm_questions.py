"""Queries of squeue and sacct, and the meaning of missing answers.

squeue knows every living job, and ended jobs for some minutes. sacct knows ended jobs, unless the
site keeps no accounts, its database is down, or it lags behind. So squeue decides about living
jobs. A missing answer of sacct is reported, and never read as success or failure.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slurm_jobs.cluster.slurm_tables import parse_config
from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.common.json_values import CLOCKS_APART_S
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.schedulers.protocol import Answer, Question, is_of
from slurm_jobs.schedulers.slurm_environment import query_environment
from slurm_jobs.schedulers.slurm_output import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    parse_sacct,
    parse_squeue,
    split_rows,
)
from slurm_jobs.schedulers.states import LIVING_STATES

COMMAND_TIMEOUT_S = 60
MAX_IDS_NAMED = 8000
"""Limit for ids in a sacct call: Linux takes 128 KiB per argument, and an id up to 12 bytes."""
SWITCHED_OFF = "accounting storage is disabled"
"""Output of sacct, with varying capitals, if `AccountingStorageType` is unset or none."""
NO_ACCOUNTS = (
    "this cluster keeps no accounts (sacct is switched off): Slurm reports an ended job only for "
    "some minutes; after that only the job's own records show how it ended"
)
_SQUEUE = ["squeue", "--all", "--states=all"]
"""`--all` includes jobs in partitions that a site hides. The header shows that squeue has used the
format even if there is no job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Accounts:
    """Answer of sacct, or the reason why there is none."""

    tasks: list[TaskAccounting] = field(default_factory=list)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find(job_names: Sequence[str]) -> Mapping[str, str]:
    """Return ids by name, from squeue and, for jobs that it has dropped, from sacct.

    A failing sacct finds no jobs, which is safe: squeue names living jobs, ended ones have a
    record, and a late job finds itself superseded. A job that Slurm refused is not returned,
    although Slurm keeps a record of it.

    Raises:
        SchedulerError: squeue failed.
    """
    text = ask([*_SQUEUE, "--me", "--name", ",".join(job_names), "-o", "%i|%T|%N|%j"])
    ids = _taken(text, "squeue")
    missing = [name for name in job_names if name not in ids]
    if missing:
        command = [*_sacct_of_cluster(), "-X", "-S", "now-30days", "--name", ",".join(missing)]
        try:
            text = ask([*command, "--format", "JobID,State,NodeList,JobName"])
            ids.update(_taken(text, "sacct"))
        except SchedulerError:
            return ids
    return ids


def _taken(text: str, command: str) -> dict[str, str]:
    """Return ids by name from lines of id, state, nodes and name, without refused jobs.

    Some refusals ("Requested node configuration is not available") leave a record of a job that has
    FAILED and never had a node.
    """
    taken = {}
    for job_id, state, nodes, name in split_rows(text, 4, command):
        if state != "FAILED" or nodes not in {"", "None assigned"}:
            taken[name] = job_id.partition("_")[0]
    return taken


def query(question: Question) -> Answer:
    """Query states with one squeue and one sacct call in parallel, however many tasks there are."""
    asked_unix_s = time.time()
    with ThreadPoolExecutor(max_workers=1) as pool:  # each waits a minute for a dead daemon
        queue = pool.submit(
            ask, [*_SQUEUE, f"--user={_users(question)}", "--array", "-o", SQUEUE_FORMAT]
        )
        accounts = _sacct(question, details=False)
        try:
            queued: dict[str, TaskAccounting] | None = parse_squeue(queue.result(), question.jobs)
            problems = accounts.problems
        except SchedulerError as error:
            queued = None
            problems = (*accounts.problems, f"squeue: {error}")
    tasks, lagging = merged(queued, {task.job_id: task for task in accounts.tasks})
    return Answer(
        tasks=tasks,
        lagging=lagging,
        problems=problems,
        notes=accounts.notes,
        asked_unix_s=asked_unix_s,
        knows_the_living=queued is not None,
    )


def merged(
    queued: Mapping[str, TaskAccounting] | None, accounted: Mapping[str, TaskAccounting]
) -> tuple[dict[str, TaskAccounting], dict[str, str]]:
    """Merge the newest state of each task, and the states in which accounting lags behind.

    `queued` is None if squeue failed. Otherwise a job that squeue does not know has ended, whatever
    sacct reports: the database may get the end late, or never.
    """
    if queued is None:
        return dict(accounted), {}
    lagging = {
        job_id: task.state
        for job_id, task in accounted.items()
        if task.state in LIVING_STATES and job_id not in queued
    }
    tasks = {job_id: task for job_id, task in accounted.items() if job_id not in lagging}
    tasks.update({k: v for k, v in queued.items() if _is_newer(v.state, k, accounted)})
    return tasks, lagging


def _is_newer(queue_state: str, job_id: str, accounted: Mapping[str, TaskAccounting]) -> bool:
    """Check whether squeue's state is newer: always for living jobs, else if sacct has no end."""
    if queue_state in LIVING_STATES:
        return True
    return job_id not in accounted or accounted[job_id].state in LIVING_STATES


def accounting(question: Question) -> Answer:
    """Query every start of every task and its usage, with one sacct call."""
    asked_unix_s = time.time()
    accounts = _sacct(question, details=True)
    return Answer(
        tasks={task.job_id: task for task in accounts.tasks},
        starts=tuple(accounts.tasks),
        problems=(*accounts.problems, *(f"sacct: {note}" for note in accounts.notes)),
        asked_unix_s=asked_unix_s,
    )


def _sacct(question: Question, *, details: bool) -> _Accounts:
    try:
        tasks = parse_sacct(ask(_sacct_command(question, details=details)))
    except SchedulerError as error:
        if SWITCHED_OFF in str(error).lower():
            return _Accounts(notes=(NO_ACCOUNTS,))
        return _Accounts(problems=(f"sacct: {error}",))
    return _Accounts(tasks=[task for task in tasks if is_of(task, question.jobs)])


def _sacct_command(question: Question, *, details: bool) -> list[str]:
    # Without -S the window starts at midnight (in older versions also with -j), and an open window
    # exceeds MaxQueryTimeRange. Slurm's times are by the controller's clock, `since_unix_s` by
    # another.
    begin_s = max(0.0, question.since_unix_s - CLOCKS_APART_S)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin_s))
    ids = list(dict.fromkeys(question.jobs.values()))
    which = ["-j", ",".join(ids)] if len(ids) <= MAX_IDS_NAMED else ["-u", _users(question)]
    scope = ["--duplicates"] if details else ["-X"]
    return [*_sacct_of_cluster(), "-S", since, *which, *scope, "--format", ",".join(SACCT_FIELDS)]


def _sacct_of_cluster() -> list[str]:
    """Return sacct for the cluster of the other commands: it alone ignores SLURM_CLUSTERS."""
    clusters = os.environ.get("SLURM_CLUSTERS")
    return ["sacct", "-P", *([f"--clusters={clusters}"] if clusters else [])]


def _users(question: Question) -> str:
    """Return the owners of the jobs; an administrator, too, queries the run's jobs."""
    return ",".join(str(uid) for uid in sorted(question.uids or {os.getuid()}))


def cluster_settings() -> Mapping[str, str]:
    """Return the settings of this machine's cluster, by Slurm's names.

    Raises:
        SchedulerError: the controller could not be reached.
    """
    return parse_config(ask(["scontrol", "show", "config"]))


def ask(command: list[str]) -> str:
    """Return the standard output of a Slurm command, independent of the shell's settings.

    Times are seconds since 1970; bytes that are not UTF-8 are replaced.

    Raises:
        SchedulerError: the command is missing, failed, or did not answer in time.
    """
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=query_environment(os.environ),
        )
    except FileNotFoundError as error:
        message = f"`{command[0]}` was not found; is this a login node of the cluster?"
        raise SchedulerError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"`{command[0]}` did not answer within {COMMAND_TIMEOUT_S} s"
        raise SchedulerError(message) from error
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        why = reason[0].removeprefix(f"{command[0]}: error: ")
        message = f"`{command[0]}` failed with exit code {result.returncode}: {why}"
        raise SchedulerError(message)
    return result.stdout
