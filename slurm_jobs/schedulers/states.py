"""Slurm's own words for the state of a job or array task that has not ended. PURE.

Every other word means that it has: `man squeue`, JOB STATE CODES, of Slurm 22.05 to 25.05.
And its reasons why one is pending, of which most are cured by waiting, and some never are:
https://slurm.schedmd.com/job_reason_codes.html and `src/common/job_state_reason.c`.
"""

from __future__ import annotations

import re
from typing import Literal

PENDING_STATES = frozenset(
    {
        "PENDING",
        "CONFIGURING",  # has its nodes; they are booting
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",  # requeued and held
    }
)
"""Will start, or start again."""

RUNNING_STATES = frozenset(
    {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
"""Has its nodes and may still change something."""

LIVING_STATES = PENDING_STATES | RUNNING_STATES

NEVER = "DependencyNeverSatisfied"
"""The reason of a job that waits for what can never be."""

Wait = Literal["", "held", "held_by_admin", "never", "blocked"]
"""Whether waiting cures a pending job.

Empty: it does, or nobody knows. `held`: its user can release it. `held_by_admin`: only an
administrator can. `never`: it exceeds a limit by itself, or names what does not exist.
`blocked`: not before an administrator, or the end of a billing period, changes something.
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
    "dependencyneversatisfied": ("never", ""),
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
"""By reason, lower case and letters alone: whether waiting cures it, and what it means."""

_PER_JOB = re.compile(r"(?:assoc|qos)(?:max\w+per(?:job|node)|min\w+)(?:limit|notsatisfied)?")
"""A limit that one job exceeds by itself; `PerUser`, `PerAccount` and `Grp` become free again."""
_USED_UP = re.compile(
    r"(?:association|qos)timelimit|(?:assoc|qos)grp(?:\w*(?<!run)minutes|wall)(?:limit)?"
)
"""An account's or QOS's budget for past, present and future jobs."""
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
"""Reasons that hold names of nodes, users or reservations, lower case and letters alone."""


def wait_of(state: str, reason: str) -> tuple[Wait, str]:
    """Return whether waiting cures a pending job, and what its reason means where that helps.

    Slurm spells reasons with blanks, underscores or brackets, depending on who prints them.
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
