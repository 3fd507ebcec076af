"""Counter that is saved at a stop, and continues after the requeue.

Nothing is simulated: the signal is the scheduler's, near the time limit; the supervisor
forwards it, has the job requeued, and starts this again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.doctor_records import drill_name
from slurm_jobs.common.errors import StageConfigError, StageStoppedError
from slurm_jobs.common.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stop import end_requested, stop_requested

_STEP_S = 0.1
_LEFT_S = 3.0
"""Before the time limit: a later signal would leave no time to save."""


def run(_config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Count until a stop, save, and continue after the requeue; called on every rank.

    Raises:
        StageStoppedError: a stop was requested, and the counter saved.
        StageConfigError: the time limit has come without a signal; or the saved counter is
            missing.
    """
    make_private_dir(context.output_dir)
    path = context.output_dir / drill_name(context.rank)
    started = {"attempt": context.attempt, "unix_s": time.time(), "node": context.node_name}
    if context.attempt > 1:
        return _come_back(path, started)
    return _count(path, started, context)


def _count(path: Path, started: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    count = 0
    kept: dict[str, Any] = {"started": started}
    write_json_atomic(path, {**kept, "count": 0})
    total = 0 if context.deadline_unix_s is None else context.deadline_unix_s - time.time()
    progress = Progress(context.task_dir, "s", max(1, round(total)))
    while not stop_requested():
        if context.deadline_unix_s is not None and time.time() > context.deadline_unix_s - _LEFT_S:
            message = "the time limit has come, and no signal before it"
            raise StageConfigError(message)
        time.sleep(_STEP_S)
        count += 1
        if count % 10 == 0:
            progress.update(min(round(count * _STEP_S), progress.total), detail="until told")
    kept |= {"asked_unix_s": time.time(), "by": "SIGTERM" if end_requested() else "SIGUSR2"}
    write_json_atomic(path, {**kept, "count": count})
    write_json_atomic(path, {**kept, "count": count, "saved_unix_s": time.time()})
    message = f"the counter stands at {count}"
    raise StageStoppedError(message)


def _come_back(path: Path, started: dict[str, Any]) -> dict[str, Any]:
    try:
        kept = read_json(path)
    except (FileNotFoundError, json.JSONDecodeError) as error:
        message = f"what the first attempt saved is gone: {error}"
        raise StageConfigError(message) from error
    if "saved_unix_s" not in kept:
        message = "the first attempt saved nothing before it ended"
        raise StageConfigError(message)
    returned = {**kept, "returned": started, "count": int(kept["count"]) + 1}
    write_json_atomic(path, returned)
    return {"count": returned["count"]}
