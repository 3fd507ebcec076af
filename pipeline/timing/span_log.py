"""Spans: everything that takes time but is not a step, as JSON lines."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.timing.whole_records import append_whole
from slurm_jobs.formats.records.activity import doing
from slurm_jobs.formats.timings.step_records import spans_path

log = logging.getLogger(__name__)


class SpanLog:
    """Appends one line per span to this rank's file; a line is written when its span ends."""

    def __init__(self, timing_dir: Path, rank: int) -> None:
        self._path = spans_path(timing_dir, rank)

    @contextmanager
    def span(self, name: str, **notes: Any) -> Iterator[dict[str, Any]]:
        """Time the block; the block may add to the yielded dict.

        A block that raises is recorded too, with the exception's type as `error`.
        """
        start_unix_s, start_ns = time.time(), time.perf_counter_ns()

        def write() -> None:
            duration_s = (time.perf_counter_ns() - start_ns) / 1e9
            self.add(name, start_unix_s=start_unix_s, duration_s=duration_s, **notes)

        try:
            with doing(name):
                yield notes
        except BaseException as error:
            notes["error"] = type(error).__name__
            try:
                write()
            except OSError as failure:  # the block's error takes precedence
                log.warning("the span %s is not written: %s", name, failure)
            raise
        write()

    def add(self, name: str, *, start_unix_s: float, duration_s: float, **notes: Any) -> None:
        """Write a span that was timed elsewhere.

        Raises:
            OSError: the file system failed; the file is unchanged.
        """
        span = {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s, **notes}
        with self._path.open("ab", buffering=0) as stream:
            append_whole(stream, json.dumps(span).encode() + b"\n")
