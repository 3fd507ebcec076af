"""The scheduler's last answer about a run, kept for some seconds for whoever looks next.

Many terminals that look at one run put one question to the controller, not
one each. Only looking takes what is kept; whoever acts asks anew. A file that
cannot be written or read costs a question and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.common.files import write_text_atomic
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.intents import Intent
from slurm_jobs.schedulers.protocol import Answer

FRESH_S = 4.0
"""So long an answer serves again: however many look, a run costs one question in that time.

Slurm grants a user 2 requests a second where a site limits them (`slurm.conf`, rl_refill_rate),
and submitit#1759 tells of a site whose limit was met by polling alone. Shorter than the 5 s
between two looks of `watch`, so that each look of a lone watcher brings news.
"""
INCOMPLETE_FRESH_S = 1.0
"""The same for an answer that lacks a source: it may be back at once."""

_TASK_FIELDS = tuple(field.name for field in dataclasses.fields(TaskAccounting))


def scope_of(intents: Iterable[Intent]) -> list[list[Any]]:
    """What an answer is about; one about less, or from before a cancellation, is not used."""
    return [[intent.job_id, ranges_text(sorted(intent.cancelled_slices))] for intent in intents]


def keep_answer(path: Path, scope: list[list[Any]], answer: Answer) -> None:
    """Write an answer down; where that cannot be done, the next to look asks."""
    values = {
        "fields": _TASK_FIELDS,
        "scope": scope,
        "kept_unix_s": time.time(),
        "asked_unix_s": answer.asked_unix_s,
        "tasks": [[getattr(t, name) for name in _TASK_FIELDS] for t in answer.tasks.values()],
        "problems": answer.problems,
        "notes": answer.notes,
        "lagging": answer.lagging,
        "knows_the_living": answer.knows_the_living,
    }
    with suppress(OSError):
        write_text_atomic(path, json.dumps(values))


def kept_answer(path: Path, scope: list[list[Any]]) -> Answer | None:
    """The kept answer, if it is about exactly this and fresh.

    Freshness counts from when the answer came: a controller that takes half a minute to
    answer is the last that should be asked by every terminal.
    """
    try:
        values = json.loads(path.read_bytes())
        if values["scope"] != scope or values["fields"] != list(_TASK_FIELDS):
            return None
        age_s = time.time() - values["kept_unix_s"]
        if not 0 <= age_s < (INCOMPLETE_FRESH_S if values["problems"] else FRESH_S):
            return None
        tasks = [
            TaskAccounting(**dict(zip(_TASK_FIELDS, row, strict=True))) for row in values["tasks"]
        ]
        return Answer(
            tasks={task.job_id: task for task in tasks},
            problems=tuple(values["problems"]),
            notes=tuple(values["notes"]),
            asked_unix_s=float(values["asked_unix_s"]),
            knows_the_living=bool(values["knows_the_living"]),
            lagging=dict(values["lagging"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not there, cut short, another version's, or not ours at all
