"""The compute node's entry: a supervisor for each job or array task, and its ranks.

Standard library only, so that a stage's own Python needs nothing of ours: the
snapshot in the run folder brings the code.

`start.py task RUN_DIR TOKEN`  the batch process: fencing, records, ranks, retries, requeue
`start.py rank TASK_DIR`       one rank's keeper: log, signals, exit record
`start.py call TASK_DIR`       the stage's function itself
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Dispatch on the first word; ends the process with the exit code of what ran."""
    from slurm_jobs.task.rank import FORWARDED

    code = _run(*arguments)
    # While Python ends, signals have their default effect again: one that came now, such as a
    # warning of the time limit, would turn an end that was recorded into a death by signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    sys.exit(code)


def _run(verb: str, folder: str, *rest: str) -> int:
    if verb == "task":
        from slurm_jobs.task.supervisor import supervise

        return supervise(Path(folder), *rest)
    if verb == "rank":
        from slurm_jobs.task.rank import keep_rank

        return keep_rank(Path(folder))
    assert verb == "call", verb
    from slurm_jobs.task.call import run_stage

    return run_stage(Path(folder))
