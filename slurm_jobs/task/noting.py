"""Recording of a node's facts next to its ranks, in a process that no rank depends on.

The keeper of a node's first rank forks once that rank runs. The child may be slow (nvidia-smi is),
may hang and may be killed. After the rank has ended, the keeper waits at most `FACTS_PATIENCE_S`
for the first facts and `GPUS_PATIENCE_S` for the GPUs, and ignores the result.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.files import remove_leftovers
from slurm_jobs.common.process import dies_with_parent
from slurm_jobs.run.paths import RunPaths

FACTS_PATIENCE_S = 3.0
"""Patience for the first facts. They take milliseconds, more if all cores are busy; a rank rarely
ends before them."""
GPUS_PATIENCE_S = 0.3
_POLL_S = 0.005
_NICENESS = 10


def facts_path(context: TaskContext) -> Path:
    """Return the file with the facts of this node, for this attempt."""
    return RunPaths(context.run_dir).node_facts(
        context.stage, context.slice_index, context.attempt, context.node_rank
    )


def start_noting(context: TaskContext) -> int | None:
    """Fork a process that records the facts of this node, and return its pid at once.

    The caller has one thread, and blocks the signals that it handles. Return None if the node
    cannot fork any more.
    """
    die_with_keeper = dies_with_parent(signal.SIGKILL)
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    try:
        die_with_keeper()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.nice(_NICENESS)
        from slurm_jobs.task.node_facts import note_node  # late: not in the ranks' way

        note_node(context, facts_path(context), os.environ)
    except Exception as error:  # noqa: BLE001 - missing facts never fail an attempt
        print(f"slurm-jobs: facts of this node not noted: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def end_noting(pid: int, context: TaskContext) -> None:
    """Give the recording process a moment more, end it, and remove partly written files."""
    facts = facts_path(context)
    has_ended = _ends(pid, FACTS_PATIENCE_S, unless=facts) or _ends(pid, GPUS_PATIENCE_S)
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
        if _ends(pid, GPUS_PATIENCE_S):  # else it is stuck in the kernel
            remove_leftovers(facts.parent, facts.name)


def _ends(pid: int, patience_s: float, unless: Path | None = None) -> bool:
    """Return whether the process ends within `patience_s`; stop waiting once `unless` exists."""
    end_s = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s or (unless is not None and unless.exists()):
            return False
        time.sleep(_POLL_S)
    return True
