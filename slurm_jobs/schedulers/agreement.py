"""State of a job by squeue, the controller (`scontrol show job`) and the accounting. PURE.

Each of the three may be behind. Some sites answer squeue from a cache that is minutes old, and the
accounting gets the end of a job late or never. The controller decides which jobs live, but it
forgets a job some minutes after its end (`MinJobAge`), and it can lose its state. So a job that one
source does not list has not ended for that reason alone:

| squeue | controller | accounting | what counts |
| --- | --- | --- | --- |
| any | knows the job | any | the controller's state |
| any | does not know it | ended, or no entry | it has ended |
| any | does not know it | living | fresh: open; else it has ended, and the accounting lags |
| lists it | was not asked | any | squeue's state |
| does not list it | was not asked | ended | the accounting's state |
| does not list it | was not asked | living, or no entry | it has ended |
| any | did not answer | any | as if not asked; open for a fresh job and for commands that act |
| does not list it | cannot be asked here | any | as if not asked; open for a fresh job |

Of a job that has ended, the accounting's state counts if it has the end, because it has the exit
code, too. A job is fresh for `AGREE_S` after its submission. While a job is open, `status` shows it
as alive, and no command replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.schedulers.protocol import Answer, Doubt, Question

AGREE_S = 600.0
"""Seconds after its submission in which a job that squeue does not list may be alive all the same.

Own choice: twice Slurm's default for `MinJobAge`, and twice the oldest cache that is tested (300
s). A longer time would only delay a resume where the controller does not answer.
"""


ControllerWord = Literal["not asked", "unreachable", "silent", "answered"]
"""Whether the controller was asked about a job, and answered; `unreachable`: no `scontrol` here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Entries of the sources about one job or array element."""

    age_s: float
    """Time since the submission."""
    queued: TaskAccounting | None = None
    accounted: TaskAccounting | None = None
    controller: ControllerWord = "not asked"
    controlled: TaskAccounting | None = None
    """Answer of the controller; None also if it does not know the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreedState:
    """State of a job or array element in which the sources agree."""

    task: TaskAccounting | None = None
    """Newest state; None if no source has one."""
    lags: str | None = None
    """State that the accounting still has, for a job that has ended."""
    doubt: Doubt | None = None
    """Why it is open whether the job lives; None if it is known."""


def agree(words: Words, *, acts: bool) -> AgreedState:
    """Return the state of a job; `acts`: a command would replace or cancel it."""
    is_fresh = _is_fresh(words.age_s)
    accounted = words.accounted
    if words.controlled is not None:
        return AgreedState(task=_with_accounting(words.controlled, accounted))
    if words.controller == "answered":
        if is_fresh and lives(accounted):
            return AgreedState(task=accounted, doubt="controller forgot")
        return _ended(accounted, words.queued)
    is_open = words.controller == "silent" and (acts or is_fresh)
    is_open |= words.controller == "unreachable" and is_fresh and words.queued is None
    doubt: Doubt | None = "controller silent" if is_open else None
    if words.queued is not None:
        return AgreedState(task=_with_accounting(words.queued, accounted), doubt=doubt)
    if is_open:
        return AgreedState(task=accounted, doubt=doubt)
    return _ended(accounted, None)


def _is_fresh(age_s: float) -> bool:
    """Check for a fresh job. A negative age means only that the clocks of two machines differ."""
    return abs(age_s) < AGREE_S


def _with_accounting(task: TaskAccounting, accounted: TaskAccounting | None) -> TaskAccounting:
    """Return the accounting's entry if both have ended: it has exit code and usage."""
    return task if accounted is None or lives(task) or lives(accounted) else accounted


def _ended(accounted: TaskAccounting | None, queued: TaskAccounting | None) -> AgreedState:
    """Return the state of a job that has ended: the first of two entries that has an end."""
    lags = accounted.state if accounted is not None and lives(accounted) else None
    task = next((t for t in (accounted, queued) if t is not None and not lives(t)), None)
    return AgreedState(task=task, lags=lags)


def lives(task: TaskAccounting | None) -> bool:
    """Check whether an entry is of a job that is queued or runs."""
    return task is not None and task.state in LIVING_STATES


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSources:
    """Answers of the sources about the jobs of a question."""

    queued: Mapping[JobKey, TaskAccounting]
    accounted: Mapping[JobKey, TaskAccounting]
    controlled: Mapping[JobKey, TaskAccounting] = field(default_factory=dict)
    answered: frozenset[JobKey] = frozenset()
    """Jobs about which the controller was asked, and answered."""
    silent: frozenset[JobKey] = frozenset()
    """Jobs about which it was asked in vain."""
    without_controller: frozenset[JobKey] = frozenset()
    """Jobs about which it could not be asked, because there is no `scontrol` here."""


def to_confirm(question: Question, sources: JobSources, now_unix_s: float) -> list[JobKey]:
    """Return the jobs about which the controller must be asked.

    For display, these are open jobs that squeue does not list although they are fresh, or although
    the accounting has them alive. A command that acts needs the controller's word about every open
    job, and about every job that it may cancel.
    """
    queued = {key.job for key in sources.queued}
    queued_alive = {key.job for key, task in sources.queued.items() if lives(task)}
    only_accounted_alive = {  # of an array in part, so that squeue may list other elements of it
        key.job
        for key, task in sources.accounted.items()
        if lives(task) and key not in sources.queued
    }
    chosen = []
    for name, job_id in question.jobs.items():
        job = JobKey(name, job_id)
        is_open = name in question.open_jobs
        if question.acts:
            matters = is_open or job in queued_alive
        else:
            is_fresh = is_open and _is_fresh(now_unix_s - question.open_jobs[name])
            is_unlisted = job not in queued
            matters = is_open and ((is_fresh and is_unlisted) or job in only_accounted_alive)
        if matters:
            chosen.append(job)
    return chosen


def answer_of(question: Question, sources: JobSources, now_unix_s: float) -> Answer:
    """Return the states on which the sources agree, and the jobs of which it is open."""
    tasks: dict[JobKey, TaskAccounting] = {}
    lagging: dict[JobKey, str] = {}
    doubts: dict[JobKey, Doubt] = {}
    jobs = [JobKey(name, job_id) for name, job_id in question.jobs.items()]
    keys = [*sources.queued, *sources.accounted, *sources.controlled, *jobs]
    for key in dict.fromkeys(keys):
        submitted_unix_s = question.open_jobs.get(key.name)
        outcome = agree(
            Words(
                age_s=math.inf if submitted_unix_s is None else now_unix_s - submitted_unix_s,
                queued=sources.queued.get(key),
                accounted=sources.accounted.get(key),
                controller=_controller_on(key.job, sources),
                controlled=sources.controlled.get(key),
            ),
            acts=question.acts,
        )
        if outcome.task is not None:
            tasks[key] = outcome.task
        if outcome.lags is not None:
            lagging[key] = outcome.lags
        if outcome.doubt is not None:
            doubts[key] = outcome.doubt
    return Answer(tasks=tasks, lagging=lagging, doubts=doubts, asked_unix_s=now_unix_s)


def _controller_on(job: JobKey, sources: JobSources) -> ControllerWord:
    if job in sources.answered:
        return "answered"
    if job in sources.without_controller:
        return "unreachable"
    return "silent" if job in sources.silent else "not asked"
