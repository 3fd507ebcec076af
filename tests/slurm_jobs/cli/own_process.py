"""The command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO


def ended_process(
    arguments: list[str], standard_output: IO[str] | int, *, buffering: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own; `buffering`: of Python, empty for its default."""
    return subprocess.run(
        [sys.executable, "-m", "slurm_jobs", *arguments],
        stdout=standard_output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": buffering},
    )
