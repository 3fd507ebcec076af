"""Answer of Python code that runs in a separate process, which may crash or hang."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.base.processes.programs import ask_together

_MAX_BYTES = 200_000
MARK = "slurm-jobs doctor: "
"""Prefix of the answer's line: libraries print other lines."""


def ask_python(code: str, words: Sequence[str], *, limit_s: float) -> tuple[Any, str]:
    """Run code in this Python, in a separate process that may crash or hang.

    Args:
        code: Prints `MARK` and its answer as JSON.
        words: Its `sys.argv[1:]`.
        limit_s: Time after which the process is killed.

    Returns:
        The answer, or None and why there is none.
    """
    answer = ask_together(
        {"python": [sys.executable, "-c", code, *words]},
        limit_s=limit_s,
        max_bytes=_MAX_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )["python"]
    line = next((li for li in answer.text.splitlines() if li.startswith(MARK)), "")
    if not line:
        return None, answer.problem or "it printed nothing"
    return json.loads(line.removeprefix(MARK)), ""
