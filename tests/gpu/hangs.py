"""A rank that hangs on its device is named, and one that fails with NCCL alive ends at once."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slurm_jobs.formats.records.heartbeat import read_heartbeat, stacks_path
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.schedulers.rank_variables import default_variables
from slurm_jobs.worker.hangs import DUMP_S, StallWatch, find_cause
from slurm_jobs.worker.job_identity import free_port
from slurm_jobs.worker.late_exit import read_returned
from slurm_jobs.worker.stacks import request_stacks
from tests.contexts import make_context
from tests.gpu.models import open_tiny, train_config
from tests.gpu.rank_functions import LAST_STEP
from tests.gpu.work import Work

_PATIENCE_MIN = 0.05
_MOST_S = 60.0
"""From the first step to the alarm; a CPU that others use takes longer than a GPU."""
_FAILED_S = 2.0
_KILLED_S = 15.0
_POLL_S = 0.1


def device_hang(work: Work) -> None:
    """Let a kernel run forever: the watch raises the alarm, and the reason names the place."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    config = train_config(
        kind, work, num_steps=LAST_STEP + 1, strategy="fsdp2", stall_timeout_min=_PATIENCE_MIN
    )
    context = _context(work.folder / "hang", config)
    watch = StallWatch(context.task_dir, 1)
    with _rank("spins", context) as process:
        while not _has_begun(context) and process.poll() is None:
            time.sleep(_POLL_S)
        began, alarm = time.monotonic(), None
        most_s = _MOST_S if work.has_gpu else 10 * _MOST_S
        while alarm != "end" and process.poll() is None and time.monotonic() < began + most_s:
            alarm = watch.tick()
            time.sleep(_POLL_S)
        work.check("the rank still runs", process.poll() is None, process.returncode)
        work.check("the watch raises the alarm", alarm == "end", alarm)
        request_stacks(context.task_dir, 0, process.pid)
        time.sleep(DUMP_S)
        cause = find_cause(context.task_dir, 1)
        text = cause.text if cause else "no cause"
        work.note(reason=text, alarm_after_s=watch.idle_s)
        expected = "rank 0 was in a wait for the device, at "
        work.check("the reason names the wait for the device", text.startswith(expected), text)
        stacks = stacks_path(context.task_dir, 0)
        work.check("the stacks have the loop", "run_steps" in stacks.read_text())
        _check_flights(work, context.task_dir)
        killed = time.monotonic()
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_KILLED_S)
        work.check("a kill ends it", process.poll() is not None, f"within {_KILLED_S:g} s")
        work.note(killed_after_s=time.monotonic() - killed)


def _check_flights(work: Work, task_dir: Path) -> None:
    """Read what torch's flight recorders wrote: of gloo, and on a GPU of NCCL."""
    names = ("gloo-flight-0", "flight-0") if work.has_gpu else ("gloo-flight-0",)
    for name in names:
        path = task_dir / name
        entries = pickle.loads(path.read_bytes()).get("entries", []) if path.exists() else None
        what = "is missing" if entries is None else f"{len(entries)} entries"
        work.note(**{name.replace("-", "_"): what})
        work.check(f"the flight recorder wrote {name}", path.exists())
    if work.has_gpu and (task_dir / "flight-0").exists():
        from torch.distributed.flight_recorder.components.loader import read_dump

        dump = read_dump("flight-", str(task_dir / "flight-0"))
        work.check("torch's tool reads it", bool(dump["entries"]), sorted(dump))


def failing_rank(work: Work) -> None:
    """Raise after a collective of the device: the process must end at once, with its code."""
    context = _context(work.folder / "fail", {"device": work.device})
    with _rank("fails", context) as process:
        code = process.wait()
        ended_unix_s = time.time()
    returned: Mapping[str, Any] | None = read_returned(context.task_dir, 0)
    work.check("the failure is written down", returned is not None)
    error = json.loads((context.task_dir / "rank-00000.error.json").read_text())
    work.check("the error is the rank's own", "a bad row" in error["message"], error["message"])
    work.check("the exit code is that of a failure", code == 1, code)
    if returned is not None:
        seconds = ended_unix_s - returned["returned_unix_s"]
        work.note(seconds_to_end=seconds)
        if work.has_gpu:
            work.at_most("seconds from the failure to the end", seconds, _FAILED_S)


def both(work: Work) -> None:
    """Run both; the failing rank first, which is the shorter one."""
    failing_rank(work)
    device_hang(work)


def _has_begun(context: TaskContext) -> bool:
    beat = read_heartbeat(context.task_dir, 0)
    return beat is not None and beat["doing"] == "steps"


def _context(folder: Path, config: Mapping[str, Any]) -> TaskContext:
    context = make_context("train", folder, main_port=free_port(), config=dict(config))
    (context.task_dir / "context.json").write_text(json.dumps(record_to_json(context)))
    return context


@contextmanager
def _rank(function: str, context: TaskContext) -> Iterator[subprocess.Popen[bytes]]:
    """Run a function of `rank_functions` as the process of a rank; it is dead afterwards."""
    flights = default_variables(
        (), num_threads=2, num_ranks=2, num_gpus=0, interface=None,
        flight_prefix=str(context.task_dir / "flight-"),
    )  # fmt: skip
    entry_point = {"SLURM_JOBS_ENTRY_POINT": f"tests.gpu.rank_functions:{function}"}
    command = [sys.executable, "-m", "tests.gpu.rank_functions"]
    process = subprocess.Popen(
        [*command, str(context.task_dir / "context.json")],
        env={**os.environ, **flights, **entry_point},
    )
    try:
        yield process
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # the driver may take its time
            process.wait(timeout=_KILLED_S)
