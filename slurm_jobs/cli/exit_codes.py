"""Exit codes of the command line: 0 success, 1 the run failed, 130 Ctrl-C.

Errors have theirs in `base/errors.py`: 2 wrong input, 3 the scheduler is unreachable or a file
cannot be read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus

INTERRUPTED_EXIT_CODE = 130


def exit_code(status: RunStatus) -> int:
    """Return 0 for an active or complete run, 1 for a failed one, 3 if it is unknown."""
    if status.status == "unknown":
        return 3
    return 1 if status.status in {"failed", "cancelled", "stranded"} else 0
