"""Printing of logs as they grow, including slices and attempts that begin meanwhile."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_jobs.cli.screen import log_output

_utf8_decoder = codecs.getincrementaldecoder("utf-8")
FOLLOW_INTERVAL_S = 0.5
LOOK_INTERVAL_S = 2.0
"""Interval between two listings of the stage's log folder."""


@dataclass(slots=True)
class GrowingLogs:
    """Logs, and the position up to which each has been printed."""

    with_stage: bool = False
    """True if they are of several stages."""
    offsets: dict[Path, int] = field(default_factory=dict)
    _decoders: dict[Path, codecs.IncrementalDecoder] = field(default_factory=dict)
    """Each keeps the first bytes of a character that is not complete yet."""
    _last: Path | None = None

    def print_ends(self, logs: Sequence[Path], num_lines: int) -> None:
        """Print the last lines of each, and continue from there."""
        from slurm_jobs.cli.log_files import last_lines

        for log in logs:
            self.offsets[log] = log.stat().st_size
            lines = last_lines(log, num_lines)
            if lines:
                self._begin(log)
            for line in lines:
                print(line, file=log_output())

    def print_added(self, logs: Sequence[Path]) -> None:
        """Print what was added to these logs, or to earlier ones."""
        for log in dict.fromkeys([*self.offsets, *logs]):
            with log.open("rb") as stream:
                stream.seek(self.offsets.get(log, 0))
                added = stream.read()
                self.offsets[log] = stream.tell()
            text = self._decoders.setdefault(log, _utf8_decoder(errors="replace")).decode(added)
            if text:
                self._begin(log)
                log_output().write(text)
        sys.stdout.flush()

    def _begin(self, log: Path) -> None:
        """Print the name if another log was printed before, or if there may be several stages."""
        from slurm_jobs.cli.log_files import shown_name

        if self._last != log and (self._last is not None or self.with_stage):
            print(f"==> {shown_name(log, with_stage=self.with_stage)} <==")
        self._last = log


def follow_logs(
    look: Callable[[], tuple[Sequence[Path], bool]], *, tail: int | None, with_stage: bool = False
) -> bool:
    """Print logs as they grow until no more will come; return whether there were any.

    Args:
        look: the logs that there are, and whether no more will come.
        tail: number of lines of each log to print at the start.
        with_stage: they are of several stages, so that a log's name needs its stage's.
    """
    growing = GrowingLogs(with_stage=with_stage)
    logs, is_over = look()
    if tail is not None:
        growing.print_ends(logs, tail)
    while True:
        growing.print_added(logs)
        if is_over:
            return bool(growing.offsets)
        end_s = time.monotonic() + LOOK_INTERVAL_S
        while time.monotonic() < end_s:
            time.sleep(FOLLOW_INTERVAL_S)
            growing.print_added(logs)
        logs, is_over = look()
