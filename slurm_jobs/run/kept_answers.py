"""Answers of a scheduler that are stored for some seconds, for commands that only display."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.schedulers.protocol import Answer, SourceProblem

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
        "problems": answer.problem_texts,  # as earlier versions read them
        "failed_sources": answer.problems,
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
            problems=tuple(SourceProblem(*problem) for problem in values["failed_sources"]),
            notes=tuple(values["notes"]),
            asked_unix_s=float(values["asked_unix_s"]),
            knows_the_living=bool(values["knows_the_living"]),
            lagging={JobKey(name, job_id): state for name, job_id, state in values["lagging"]},
            doubts={JobKey(name, job_id): doubt for name, job_id, doubt in values["doubts"]},
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None  # missing, truncated, of another version, or no file of ours
