"""Entry point on the compute node: a supervisor for each job or array task, and its ranks.

It uses the standard library only, so that a stage's own Python needs no package of ours: the code
comes from the snapshot in the run folder.

`start.py task RUN_DIR TOKEN`  the batch process: fencing, records, ranks, retries, requeue
`start.py rank TASK_DIR`       one rank's keeper: log, signals, exit record
`start.py call TASK_DIR`       the stage's function itself
`start.py debug CONTEXT`       the same under a debugger, for `slurm-jobs debug`
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import FileError
from slurm_jobs.base.files import storage_problem


def main(arguments: Sequence[str]) -> None:
    """Run the command that the first word names, and exit with its exit code."""
    from slurm_jobs.worker.rank import HELD
    from slurm_jobs.worker.stacks import REQUEST_SIGNAL

    verb, folder, *rest = arguments
    try:
        code = _run(verb, Path(folder), *rest)
    except (OSError, FileError) as error:  # files of the run: a stage's errors are caught earlier
        what = storage_problem(error) if isinstance(error, OSError) else str(error)
        who = {"task": "supervisor", "rank": "keeper of a rank"}.get(verb, "rank")
        text = f"slurm-jobs: the {who} cannot continue: {what}; then `slurm-jobs resume`"
        with suppress(OSError):  # the log may be on the same full disk
            print(text, file=sys.stderr, flush=True)
        code = 1
    # During Python's shutdown signals have their default effect again. A late one, such as a
    # warning of the time limit or a request for stacks, would turn a recorded end into a death by
    # signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*HELD, REQUEST_SIGNAL))
    sys.exit(code)


def _run(verb: str, folder: Path, *rest: str) -> int:
    if verb == "task":
        from slurm_jobs.worker.supervisor import supervise

        return supervise(folder, *rest)
    if verb == "rank":
        from slurm_jobs.worker.rank import keep_rank

        return keep_rank(folder)
    if verb == "debug":
        from slurm_jobs.worker.debugged_call import debug_stage

        return debug_stage(folder, stops_first="stop" in rest)
    assert verb == "call", verb
    from slurm_jobs.worker.call import run_stage

    return run_stage(folder)
