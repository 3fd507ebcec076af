"""Slurm's states of a job or array task that has not ended, and its pending reasons.

Every other state means that the job has ended: `man squeue`, JOB STATE CODES, of Slurm 22.05 to
25.05. Waiting cures most pending reasons, but not all:
https://slurm.schedmd.com/job_reason_codes.html and `src/common/job_state_reason.c`.
"""

from __future__ import annotations

import re
from typing import Literal

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
