"""Clock comparison with the login node, by files of the run: a question, and its answer.

Neither machine needs a connection to the other. A file that is seen was written before, so each
direction bounds the difference of the clocks, however late the file system shows a file. The
bounds are kept, not only their middle.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.formats.node_records.doctor_facts import (
    SIGNAL_NAME,
    ClockFacts,
    answer_name,
    hello_name,
)

_EXCHANGE_POLL_S = 0.05


class ClockQuestion:
    """Sends the question to the login node in a thread, while the node is examined."""

    def __init__(self, folder: Path, rank: int, patience_s: float) -> None:
        self._folder, self._rank, self._patience_s = folder, rank, patience_s
        self.clock: ClockFacts | None = None
        self.both_ways_s: float | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the answer, or until the time is over."""
        self._thread.join(self._patience_s + 1.0)

    def _ask(self) -> None:
        before_s, start_s = time.time(), time.monotonic()
        write_json_atomic(self._folder / hello_name(self._rank), {"unix_s": before_s})
        answer = _wait_for_json(self._folder / answer_name(self._rank), self._patience_s)
        if answer is not None:
            self.clock = ClockFacts(
                least_s=answer["written_unix_s"] - time.time(),
                most_s=answer["seen_unix_s"] - before_s,
            )
            self.both_ways_s = time.monotonic() - start_s


def signal_was_sent(folder: Path, patience_s: float) -> tuple[bool | None, str]:
    """Return whether the login node had this job signalled; None and why if unknown."""
    answer = _wait_for_json(folder / SIGNAL_NAME, patience_s)
    if answer is None:
        return None, f"the login node sent none within {patience_s:g} s"
    return (None, answer["problem"]) if answer["problem"] else (True, "")


def _wait_for_json(path: Path, patience_s: float) -> dict[str, Any] | None:
    """Read a file as soon as it exists; None if it does not in time."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        with suppress(FileNotFoundError):
            values: dict[str, Any] = read_json(path)
            return values
        time.sleep(_EXCHANGE_POLL_S)
    return None
