"""Counter that is saved at a stop, and continues after the requeue.

Nothing is simulated: the signal is the scheduler's, near the time limit; the supervisor
forwards it, has the job requeued, and starts this again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.processes.stop_requests import end_requested, stop_requested
from slurm_jobs.formats.node_records.doctor_facts import drill_name
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.task_context import TaskContext

_STEP_S = 0.1
_LEFT_S = 3.0
"""Before the time limit: a later signal would leave no time to save."""


def run_drill(_config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Count until a stop, save, and continue after the requeue; called on every rank.

    Raises:
        StageStoppedError: a stop was requested, and the counter saved.
        StageConfigError: the time limit has come without a signal; or the saved counter is
            missing.
    """
    make_private_dir(context.output_dir)
    path = context.output_dir / drill_name(context.rank)
    start = {"attempt": context.attempt, "unix_s": time.time(), "node": context.node_name}
    if context.attempt > 1:
        try:
            saved = read_json(path)
        except (FileNotFoundError, json.JSONDecodeError) as error:
            message = f"what the first attempt saved is gone: {error}"
            raise StageConfigError(message) from error
        if "saved_unix_s" not in saved:
            message = "the first attempt saved nothing before it ended"
            raise StageConfigError(message)
        count = int(saved["count"]) + 1
        write_json_atomic(path, {**saved, "returned": start, "count": count})
        return {"count": count}
    count = 0
    write_json_atomic(path, {"started": start, "count": count})
    deadline_unix_s = context.deadline_unix_s
    total_s = 0 if deadline_unix_s is None else deadline_unix_s - time.time()
    progress = Progress(context.task_dir, "s", max(1, round(total_s)))
    while not stop_requested():
        if deadline_unix_s is not None and time.time() > deadline_unix_s - _LEFT_S:
            message = "the time limit has come, and no signal before it"
            raise StageConfigError(message)
        time.sleep(_STEP_S)
        count += 1
        if count % 10 == 0:
            progress.update(min(round(count * _STEP_S), progress.total), detail="until the signal")
    signal_name = "SIGTERM" if end_requested() else "SIGUSR2"
    record = {"started": start, "asked_unix_s": time.time(), "by": signal_name, "count": count}
    write_json_atomic(path, record)
    write_json_atomic(path, {**record, "saved_unix_s": time.time()})
    message = f"the counter is {count}"
    raise StageStoppedError(message)
