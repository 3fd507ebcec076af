"""Functions of a rank that hangs on its device or fails with a process group, for `hangs`.

Usage: python -m tests.gpu.rank_functions CONTEXT_JSON

with the variable SLURM_JOBS_ENTRY_POINT=tests.gpu.rank_functions:NAME.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.call import run_stage

LAST_STEP = 5
"""The host reads its own verdict in it, and nothing of the device between that and the kernel."""
_SPIN_CYCLES = 10**13
"""More than an hour of any GPU."""


def spins(config: dict[str, Any], context: TaskContext) -> Any:
    """Train until a kernel of the device never ends; on a CPU until an event never comes."""
    import torch

    from pipeline.timing.recorder import StepRecorder
    from pipeline.train import loop, run, verdict

    is_gpu, step_now = config["device"] == "cuda", [-1]
    start_step, judge = StepRecorder.start_step, verdict.judge
    read = verdict.QueuedVerdict.read

    def start(self: StepRecorder, step: int) -> None:
        step_now[0] = step
        start_step(self, step)

    def judge_or_spin(*args: Any) -> verdict.QueuedVerdict:
        if step_now[0] == LAST_STEP and is_gpu:
            torch.cuda._sleep(_SPIN_CYCLES)
        return judge(*args)

    def read_or_wait(self: verdict.QueuedVerdict) -> verdict.StepVerdict:
        if step_now[0] == LAST_STEP and not is_gpu:
            self._mark = _NeverPassed()  # type: ignore[assignment]
        return read(self)

    with (
        mock.patch.object(StepRecorder, "start_step", start),
        mock.patch.object(loop, "judge", judge_or_spin),
        mock.patch.object(verdict.QueuedVerdict, "read", read_or_wait),
    ):
        return run(config, context)


class _NeverPassed:
    """An event of a device that never comes to it."""

    def synchronize(self) -> None:
        """Wait."""
        threading.Event().wait()


def fails(config: dict[str, Any], context: TaskContext) -> NoReturn:
    """Fail behind a collective of the device, with the process group alive."""
    import torch

    from pipeline.train.ranks.process_group import join_ranks

    device = config["device"]
    join_ranks(context, device_type=device, timeout_min=0.5)
    total = torch.ones(1, device=device)
    torch.distributed.all_reduce(total)
    message = f"a bad row, after a sum of {total.item():g}"
    raise ValueError(message)


if __name__ == "__main__":
    sys.exit(run_stage(Path(sys.argv[1])))
