"""Logs that are printed as they grow, with those that begin meanwhile."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.cli.run_logs.log_files import blocks_to_the_end, last_lines, shown_name
from slurm_jobs.cli.terminal.guarded_streams import log_output

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(slots=True)
class GrowingLogs:
    """Logs, and the position up to which each has been printed."""

    with_heads: bool = False
    """True if the first log is named, too; later ones always are."""
    with_stage: bool = False
    """True if the name of a log has its stage."""
    offsets: dict[Path, int] = field(default_factory=dict)
    _decoders: dict[Path, codecs.IncrementalDecoder] = field(default_factory=dict)
    """Each keeps the first bytes of a character that is not complete yet."""
    _last: Path | None = None

    def print_ends(self, logs: Sequence[Path], num_lines: int) -> None:
        """Print the last lines of each, and continue from there."""
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
            decoder = self._decoders.setdefault(log, _utf8_decoder(errors="replace"))
            with open_regular(log) as stream:
                stream.seek(self.offsets.get(log, 0))
                for block in blocks_to_the_end(stream):
                    if text := decoder.decode(block):
                        self._begin(log)
                        log_output().write(text)
                self.offsets[log] = stream.tell()
        sys.stdout.flush()

    @property
    def has_printed(self) -> bool:
        """True if any of them had text."""
        return self._last is not None

    def _begin(self, log: Path) -> None:
        if self._last != log and (self._last is not None or self.with_heads):
            print(f"==> {shown_name(log, with_stage=self.with_stage)} <==")
        self._last = log
