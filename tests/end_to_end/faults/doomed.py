"""Runs `slurm-jobs` and kills it at one of its writes: `python doomed.py NUMBER ROOT VERB ...`.

A write is whatever changes something below ROOT (a file opened for writing, a
name made, moved or removed) and each start of sbatch. The process gets SIGKILL
right before the write of that NUMBER, and so right after the one before it.
Number 0 kills nothing; a command that comes to its end prints `writes: N`.
Copies of the package's own code count as one write.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NAMES = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2}
"""Events of Python's audit hooks, with how many paths they begin with."""


def _touched(event: str, args: tuple[Any, ...]) -> list[Any]:
    """The paths that an audit event is about to change."""
    if event == "open":
        return [args[0]] if isinstance(args[2], int) and args[2] & _WRITING else []
    return list(args[: _NAMES.get(event, 0)])


def doom(last: int, root: str) -> None:
    """Count the writes from now on, and die at number `last`."""
    num_writes = 0

    def look(event: str, args: tuple[Any, ...]) -> None:
        nonlocal num_writes
        if event == "subprocess.Popen":
            counts = Path(os.fsdecode(args[1][0])).name == "sbatch"
        else:
            names = [os.fsdecode(p) for p in _touched(event, args) if not isinstance(p, int)]
            counts = any(root in name for name in names)
        if counts:
            num_writes += 1
            if num_writes == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    atexit.register(lambda: print(f"writes: {num_writes}", file=sys.stderr))


if __name__ == "__main__":
    doom(int(sys.argv[1]), sys.argv[2])
    sys.argv = ["slurm_jobs", *sys.argv[3:]]
    runpy.run_module("slurm_jobs", run_name="__main__")
