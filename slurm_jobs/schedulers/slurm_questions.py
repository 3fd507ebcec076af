"""What is asked of squeue and sacct, and what their silence means.

squeue knows everything that lives, and for some minutes what has ended; sacct
knows what has ended, unless the site keeps no accounts, its database is down,
or it lags behind. So squeue is believed about what lives, and a missing sacct
is said, never read as success or failure.
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
"""More are not named to sacct: Linux takes 128 KiB an argument, and an id up to 12 bytes."""
SWITCHED_OFF = "accounting storage is disabled"
"""What sacct says, with varying capitals, where `AccountingStorageType` is unset or none."""
NO_ACCOUNTS = (
    "this cluster keeps no accounts (sacct is switched off): of a job that has ended Slurm tells "
    "only for some minutes; after that its records alone do"
)
_SQUEUE = ["squeue", "--all", "--states=all"]
"""`--all`: jobs in partitions that a site hides, too. With the header, which shows that squeue has
used the format even where there is no job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Accounts:
    """What sacct said, or why it said nothing."""

    tasks: list[TaskAccounting] = field(default_factory=list)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find(job_names: Sequence[str]) -> Mapping[str, str]:
    """Ids of jobs by name, from squeue and, where it has forgotten them, sacct.

    A sacct that fails finds nothing: what lives squeue has named, what has
    ended told its end in its record, and a job that comes later finds itself
    superseded. What Slurm refused is not found, though it keeps a record of it.

    Raises:
        SchedulerError: squeue could not be asked.
    """
    text = ask([*_SQUEUE, "--me", "--name", ",".join(job_names), "-o", "%i|%T|%N|%j"])
    found = _taken(text, "squeue")
    missing = [name for name in job_names if name not in found]
    if missing:
        command = [*_sacct_of_cluster(), "-X", "-S", "now-30days", "--name", ",".join(missing)]
        try:
            text = ask([*command, "--format", "JobID,State,NodeList,JobName"])
            found.update(_taken(text, "sacct"))
        except SchedulerError:
            return found
    return found


def _taken(text: str, command: str) -> dict[str, str]:
    """Ids by name in lines of id, state, nodes and name, without the jobs that were refused.

    Some refusals ("Requested node configuration is not available") leave a record of a job that
    has FAILED and never had a node.
    """
    taken = {}
    for job_id, state, nodes, name in split_rows(text, 4, command):
        if state != "FAILED" or nodes not in {"", "None assigned"}:
            taken[name] = job_id.partition("_")[0]
    return taken


def query(question: Question) -> Answer:
    """One squeue call and one sacct call, at the same time, however many jobs and tasks."""
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
    """The newest word on each task, and the states in which accounting lags behind.

    `queued` is None where squeue did not answer. Where it did, a job that it does not know
    lives no longer, whatever sacct says: the database was told of the end late, or never.
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
    """Squeue is right about what lives; about what has ended, sacct knows more where it has it."""
    if queue_state in LIVING_STATES:
        return True
    return job_id not in accounted or accounted[job_id].state in LIVING_STATES


def accounting(question: Question) -> Answer:
    """One sacct call: every start of every task, with what its steps used."""
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
    # Without -S the window starts at midnight, in older versions also with -j; an open one meets
    # MaxQueryTimeRange. Slurm's times are by the controller's clock, `since_unix_s` by another.
    begin_s = max(0.0, question.since_unix_s - CLOCKS_APART_S)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin_s))
    ids = list(dict.fromkeys(question.jobs.values()))
    which = ["-j", ",".join(ids)] if len(ids) <= MAX_IDS_NAMED else ["-u", _users(question)]
    scope = ["--duplicates"] if details else ["-X"]
    return [*_sacct_of_cluster(), "-S", since, *which, *scope, "--format", ",".join(SACCT_FIELDS)]


def _sacct_of_cluster() -> list[str]:
    """Return sacct for the cluster that the other commands ask: it alone ignores SLURM_CLUSTERS."""
    clusters = os.environ.get("SLURM_CLUSTERS")
    return ["sacct", "-P", *([f"--clusters={clusters}"] if clusters else [])]


def _users(question: Question) -> str:
    """Whose jobs: an administrator, too, wants those of the run, and not the own."""
    return ",".join(str(uid) for uid in sorted(question.uids or {os.getuid()}))


def cluster_settings() -> Mapping[str, str]:
    """Settings of the cluster that this machine belongs to, by Slurm's names.

    Raises:
        SchedulerError: its controller could not be asked.
    """
    return parse_config(ask(["scontrol", "show", "config"]))


def ask(command: list[str]) -> str:
    """Return the standard output of a Slurm command, which no setting of the shell changes.

    Times come as seconds since 1970; bytes that are not UTF-8 are replaced.

    Raises:
        SchedulerError: it is missing, failed, or did not answer in time.
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
