"""The compute node's entry: a supervisor for each job or array task, and its ranks.

Standard library only, so that a stage's own Python needs nothing of ours: the
snapshot in the run folder brings the code.

`start.py task RUN_DIR TOKEN`  the batch process: fencing, records, ranks, retries, requeue
`start.py rank TASK_DIR`       one rank's keeper: log, signals, exit record
`start.py call TASK_DIR`       the stage's function itself
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Dispatch on the first word; ends the process with the exit code of what ran."""
    verb, *rest = arguments
    if verb == "task":
        from slurm_jobs.task.supervisor import supervise

        sys.exit(supervise(Path(rest[0]), rest[1]))
    if verb == "rank":
        from slurm_jobs.task.rank import keep_rank

        sys.exit(keep_rank(Path(rest[0])))
    assert verb == "call", verb
    from slurm_jobs.task.call import call_stage

    sys.exit(call_stage(Path(rest[0])))
