"""Recording of a node's facts next to its ranks, in a process that no rank depends on.

The keeper of a node's first rank forks once that rank runs. The child may be slow (nvidia-smi
is), may hang and may be killed. After the rank has ended, the keeper waits at most
`FACTS_PATIENCE_S` for the first facts and `GPUS_PATIENCE_S` for the GPUs, and ignores the
result.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.files import remove_leftovers
from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.step_records import PROCESS_EXIT_SPAN, spans_path
from slurm_jobs.run_folder.paths import RunPaths

FACTS_PATIENCE_S = 3.0
"""Patience for the first facts. They take milliseconds, more if all cores are busy; a rank rarely
ends before them."""
GPUS_PATIENCE_S = 0.3
KILLED_PATIENCE_S = 3.0
"""Patience for the end of a killed process, which needs a moment of a core, and has a low priority.
"""
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
        from slurm_jobs.worker.node_facts import note_node  # late: not in the ranks' way

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
        if _ends(pid, KILLED_PATIENCE_S):  # else it is stuck in the kernel
            remove_leftovers(facts.parent, facts.name)


def _ends(pid: int, patience_s: float, unless: Path | None = None) -> bool:
    """Return whether the process ends within `patience_s`; stop waiting once `unless` exists."""
    end_s = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s or (unless is not None and unless.exists()):
            return False
        time.sleep(_POLL_S)
    return True


def note_exit(context: TaskContext, reports: list[Path], ended_unix_s: float) -> None:
    """Append the span of a process's end to those of its rank; do nothing if it records none.

    Python needs seconds to release what a training held, and cannot time that itself. If the span
    cannot be written, the time stays unexplained: a rank does not fail for it.

    Args:
        context: of the rank.
        reports: files that its process may have written last, as its function returned.
        ended_unix_s: time at which the process exited on its own. A killed process may have left
            half a line.
    """
    spans = spans_path(context.timing_dir, context.rank)
    if not spans.exists():
        return
    written = []
    for path in (*reports, spans):
        with suppress(OSError):
            written.append(path.stat().st_mtime)
    start_unix_s = min(max(written, default=ended_unix_s), ended_unix_s)
    span = {
        "name": PROCESS_EXIT_SPAN,
        "start_unix_s": start_unix_s,
        "duration_s": ended_unix_s - start_unix_s,
    }
    with suppress(OSError), spans.open("ab", buffering=0) as stream:
        stream.write(json.dumps(span).encode() + b"\n")
