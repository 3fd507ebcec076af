"""Protocol of a scheduler, and the states that it reports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.shared.config import DependencyKind
from slurm_jobs.shared.records.attempt_records import TaskAccounting
from slurm_jobs.shared.records.job_key import JobKey

# Interface of a scheduler; no other login-node code depends on a particular one.


JobDependencies = Mapping[DependencyKind, Sequence[JobKey]]
"""Jobs or array elements that a job depends on, by kind."""


Doubt = Literal["controller silent", "controller forgot"]
"""Why it is open whether a job lives, see `agreement`.

`controller silent`: squeue does not list it, and the controller did not answer. `controller
forgot`: the accounting has it alive, and the controller does not know it.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Answer of a scheduler about jobs, with the sources that failed."""

    tasks: Mapping[JobKey, TaskAccounting] = field(default_factory=dict)
    """Newest state of each job or array task."""
    starts: tuple[TaskAccounting, ...] = ()
    """One entry for each start, only from `accounting`; a requeued task has several."""
    problems: tuple[str, ...] = ()
    """Sources that could not be queried, each with the reason. A job that they do not report may
    still exist."""
    notes: tuple[str, ...] = ()
    """Information that this cluster never has, for example because accounting is switched off."""
    asked_unix_s: float = 0.0
    """Time of the query: the answer may lack later changes."""
    knows_the_living: bool = True
    """True if a job that is not in `tasks` is certainly neither queued nor running."""
    lagging: Mapping[JobKey, str] = field(default_factory=dict)
    """State that accounting still reports for a job that has ended."""
    doubts: Mapping[JobKey, Doubt] = field(default_factory=dict)
    """Jobs or array elements of which it is open whether they live. An array stands for those of
    its elements that no source lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Jobs that a query is about."""

    jobs: Mapping[str, str]
    """Job ids by name. Slurm reuses ids when it has used all, and every cluster counts separately.
    A job with a known id but another name and another batch script belongs to another run."""
    since_unix_s: float
    """Submit time of the first job, or earlier, by the clock of the submitting host."""
    uids: frozenset[int] = frozenset()
    """Owners of the jobs; empty for the current user."""
    open_jobs: Mapping[str, float] = field(default_factory=dict)
    """Submission times of the jobs whose work is not proven complete, by name."""
    acts: bool = False
    """True if the answer decides which jobs are replaced or cancelled: then the controller is
    asked about each open job."""


def is_of(task: TaskAccounting, jobs: Mapping[str, str]) -> bool:
    """Check whether Slurm's entry for a task is about one of these jobs (ids by name)."""
    return jobs.get(task.job_name) == task.key.job.job_id


class Scheduler(Protocol):
    """Scheduler of a run: Slurm, or this machine."""

    name: str

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Return the exact text of the batch script; write and submit nothing."""
        ...

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Queue a job and return its id.

        Raises:
            SchedulerError: the scheduler refused the job or could not be reached.
        """
        ...

    def start(self) -> None:
        """Start queued jobs; called once after all jobs of a command are queued."""
        ...

    def settle(self) -> None:
        """Recover from a dead part of the scheduler, before jobs are planned.

        Waits until no process remains of a task without a supervisor.
        """
        ...

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Return ids by name of those jobs that the scheduler knows.

        Raises:
            SchedulerError: the scheduler could not be reached.
        """
        ...

    def query(self, question: Question) -> Answer:
        """Return the states of jobs and their array tasks, in a fixed number of calls."""
        ...

    def accounting(self, question: Question) -> Answer:
        """Return states and usage (memory, processor time), including requeued attempts."""
        ...

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End jobs or array elements, queued or running.

        Raises:
            SchedulerError: the scheduler could not be reached.
        """
        ...


# Slurm's states of a job or array task that has not ended, and its pending reasons.
#
# Every other state means that the job has ended: `man squeue`, JOB STATE CODES, of Slurm 22.05 to
# 25.05. Waiting cures most pending reasons, but not all:
# https://slurm.schedmd.com/job_reason_codes.html and `src/common/job_state_reason.c`.


PENDING_STATES = frozenset(
    {
        "PENDING",
        "CONFIGURING",  # the job has its nodes; they are booting
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",  # requeued and held
    }
)
"""States of a job that will start, or start again."""

RUNNING_STATES = frozenset(
    {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
"""States of a job that has its nodes and may still change its files."""

LIVING_STATES = PENDING_STATES | RUNNING_STATES

NEVER = "DependencyNeverSatisfied"
"""Reason of a job whose dependency can never be met."""

Wait = Literal["", "held", "held_by_admin", "unmet", "never", "blocked"]
"""Outlook of a pending job.

Empty: waiting helps, or its effect is unknown. `held`: its user can release it. `held_by_admin`:
only an administrator can. `unmet`: one of its dependencies can never be met. `never`: it exceeds a
limit, or names something that does not exist. `blocked`: it starts only after an administrator acts
or a billing period ends.
"""

_HELD: Wait = "held"
_WAITS: dict[str, tuple[Wait, str]] = {
    "jobhelduser": (_HELD, ""),
    "jobholdmaxrequeue": (_HELD, "it was requeued as often as this cluster allows"),
    "jobrequeuedinheldstate": (_HELD, ""),
    "jobrequeuedinspecialexitstate": (_HELD, ""),
    "launchfailedrequeuedheld": (_HELD, "its node could not start it; see its prolog or node"),
    "launchfailurelimitexceededrequeuedheld": (_HELD, "no node could start it"),
    "userenvretrievalfailedrequeuedheld": (_HELD, "its node could not load your environment"),
    "jobheldadmin": ("held_by_admin", ""),
    "accountnotallowed": ("never", "its partition does not take its account"),
    "badconstraints": ("never", "no node of its partition fits what it asks for"),
    "burstbufferoperation": ("never", "its burst buffer failed"),
    "deadline": ("never", "it cannot end before its deadline"),
    "dependencyneversatisfied": ("unmet", ""),
    "invalidaccount": ("never", "its account does not exist, or is not yours"),
    "invalidqos": ("never", "its QOS does not exist, or is not yours"),
    "maxmemperlimit": ("never", "it asks for more memory per core or node than is allowed"),
    "partitiontimelimit": ("never", "its time limit is longer than its partition allows"),
    "qosnotallowed": ("never", "its partition does not take its QOS"),
    "reservationdeleted": ("never", "its reservation was deleted"),
    "reservationinvalid": ("never", "its reservation does not exist"),
    "nodedown": ("blocked", "a node that it needs is down"),
    "partitionconfig": ("blocked", "it exceeds a limit of its partition"),
    "partitiondown": ("blocked", "its partition is down"),
    "partitioninactive": ("blocked", "its partition is inactive"),
    "qosusagethreshold": (
        "blocked",
        "the past usage of its account is above the threshold of its QOS, and falls slowly",
    ),
    "partitionnodelimit": (
        "blocked",
        "it asks for more or fewer nodes than its partition allows, or nodes of it are down",
    ),
}
"""Outlook and meaning by reason, in lower case and letters only."""

_PER_JOB = re.compile(r"(?:assoc|qos)(?:max\w+per(?:job|node)|min\w+)(?:limit|notsatisfied)?")
"""Limits that a single job exceeds; `PerUser`, `PerAccount` and `Grp` become free again."""
_USED_UP = re.compile(
    r"(?:association|qos)timelimit|(?:assoc|qos)grp(?:\w*(?<!run)minutes|wall)(?:limit)?"
)
"""Budgets of an account or QOS for past, present and future jobs."""
_SENTENCES: tuple[tuple[re.Pattern[str], tuple[Wait, str]], ...] = (
    (
        re.compile(r"reqnodenotavailunavailablenodes.*"),
        ("blocked", "the nodes that it needs are down or drained"),
    ),
    (
        re.compile(r"nodesrequiredforjobaredowndrained.*"),
        (
            "blocked",
            "too few nodes of its partition are up, or not kept for partitions of higher priority",
        ),
    ),
    (
        re.compile(r".*notingrouppermittedtousethispartition.*"),
        ("never", "its partition does not take its user"),
    ),
    (
        re.compile(r".*(?:account|qos)notpermittedtousethispartition.*"),
        ("never", "its partition does not take its account or QOS"),
    ),
    (re.compile(r"reservation.+wasdeleted"), ("never", "its reservation was deleted")),
    (re.compile(r"reservation.+isinvalid"), ("never", "its reservation does not exist")),
)
"""Reasons that contain names of nodes, users or reservations, in lower case and letters only."""


def wait_of(state: str, reason: str) -> tuple[Wait, str]:
    """Return whether waiting helps a pending job, and what its reason means where that helps.

    Slurm's commands spell reasons with blanks, underscores or brackets.
    """
    key = re.sub(r"[^a-z]", "", reason.lower())
    if key in _WAITS:
        return _WAITS[key]
    if _PER_JOB.fullmatch(key):
        return "never", "it asks for more than one job may have, or for less than it must"
    if _USED_UP.fullmatch(key):
        return "blocked", "the budget of its account or QOS is used up"
    for pattern, meaning in _SENTENCES:
        if pattern.fullmatch(key):
            return meaning
    if state == "RESV_DEL_HOLD":
        return _WAITS["reservationdeleted"]
    if state in {"REQUEUE_HOLD", "SPECIAL_EXIT"} or key.endswith("requeuedheld"):
        return _HELD, ""
    return "", ""
