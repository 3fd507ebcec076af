"""Command of a rank under Nsight Systems: `nsys profile` around it, one report for each rank.

nsys runs between the keeper and the rank. Signals for the rank need its pid, which only a scan
of the processes gives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.formats.records.task_context import TaskContext

_START_PATIENCE_S = 30.0
"""Patience until nsys has started the rank, which takes some seconds on a slow file system."""
_NSIGHT_POLL_S = 0.05


def nsight_command(command: Sequence[str], context: TaskContext) -> list[str]:
    """Return a rank's command under nsys, which writes `rank-00003.nsys-rep` next to its steps."""
    output = str(context.timing_dir / f"rank-{context.rank:05d}").replace("%", "%%")
    return [
        "nsys",
        "profile",
        f"--output={output}",
        "--trace=cuda,nvtx,osrt",
        "--force-overwrite=true",
        "--wait=primary",  # the rank; the keeper ends what it leaves behind
        "--kill=none",  # a rank that is asked to stop saves first
        *command,
    ]


def find_rank(command: Sequence[str], nsys_pid: int) -> int | None:
    """Return the pid of the rank, which runs `command`; wait if nsys has not started it yet.

    None if it did not start, or nsys has ended.
    """
    end_s = time.monotonic() + _START_PATIENCE_S
    arguments = [os.fsencode(word) for word in command[1:]]
    ended = os.WEXITED | os.WNOWAIT | os.WNOHANG  # without reaping it
    with suppress(ChildProcessError):
        while time.monotonic() < end_s and os.waitid(os.P_PID, nsys_pid, ended) is None:
            parents: dict[int, int] = {}  # by pid, of the processes with this command
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # it has ended meanwhile, or is another user's
                    if (folder / "cmdline").read_bytes().split(b"\0")[1:-1] == arguments:
                        status = (folder / "stat").read_text(errors="replace")
                        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
            for pid, parent in parents.items():
                if parent not in parents:  # forks of the rank have its command, too
                    return pid
            time.sleep(_NSIGHT_POLL_S)
    return None
