"""Span that measures how long a rank's process takes to end after its function has returned.

Python needs seconds to release what a training held, and cannot time that itself. The keeper writes
the span.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.timings import PROCESS_EXIT_SPAN, spans_path


def note_exit(context: TaskContext, words: list[Path], ended_unix_s: float) -> None:
    """Append the span to those of the rank; do nothing if its stage records none.

    If it cannot be written, the time stays unexplained: a rank does not fail for it.

    Args:
        context: of the rank.
        words: files that its process may have written last, as its function returned.
        ended_unix_s: time at which the process exited on its own. A killed process may have left
            half a line.
    """
    spans = spans_path(context.timing_dir, context.rank)
    if not spans.exists():
        return
    written = []
    for path in (*words, spans):
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
