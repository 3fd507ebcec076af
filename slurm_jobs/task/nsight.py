"""Command of a rank under Nsight Systems: `nsys profile` around it, one report for each rank.

nsys runs between the keeper and the rank. Signals for the rank need its pid, which only a scan of
the processes gives.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError

_START_PATIENCE_S = 30.0
"""Patience until nsys has started the rank, which takes some seconds on a slow file system."""
_POLL_S = 0.05


def require_nsys(context: TaskContext) -> None:
    """Check that nsys is installed.

    Raises:
        StageConfigError: it is not on the PATH.
    """
    if shutil.which("nsys") is None:
        message = (
            f"stage {context.stage} has `nsight: true`, and node {context.node_name} has no nsys "
            f"on its PATH ({os.environ.get('PATH', '')}): load its module in `setup:` "
            "(`module load nsight-systems`), or leave `nsight` out"
        )
        raise StageConfigError(message)


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
    while time.monotonic() < end_s and not _has_ended(nsys_pid):
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - names alone
        same = {pid for pid in pids if _command_of(pid)[1:] == list(command[1:])}
        for pid in same:
            if _parent_of(pid) not in same:  # forks of the rank have its command, too
                return pid
        time.sleep(_POLL_S)
    return None


def _has_ended(pid: int) -> bool:
    """Check whether a child has ended, without reaping it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _parent_of(pid: int) -> int | None:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return None


def _command_of(pid: int) -> list[str]:
    with suppress(OSError):  # it has ended meanwhile, or is another user's
        return [os.fsdecode(w) for w in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []
