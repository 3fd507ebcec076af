"""What is shown of work while it runs: on a terminal alone, and gone afterwards."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import sys
from slurm_jobs.cli.terminal import progress_display as progress_bar
progress_bar._PATIENCE_S = float(sys.argv[1])
with progress_bar.working("reading the records of [b]x"):
    sys.stdin.readline()
print("done")
"""


def _on_a_terminal(patience_s: float, *, until: bytes) -> bytes:
    """All that stands on a terminal; the work ends once `until` is seen, at once without."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.environ.update(TERM="xterm", COLUMNS="80")
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(patience_s)])
    seen, is_told = b"", False
    try:
        while True:
            if until in seen and not is_told:
                is_told = True
                os.write(terminal, b"\n")
            piece = _read(terminal)
            if not piece:
                return seen
            seen += piece
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def test_work_that_takes_long_is_named_and_its_words_are_wiped_away() -> None:
    seen = _on_a_terminal(0.0, until=b"reading the records of [b]x")
    after = seen[seen.rindex(b"reading the records of [b]x") :]
    assert b"\x1b[2K" in after  # the line is emptied
    assert after.rstrip().endswith(b"done")


def test_work_that_ends_at_once_is_not_announced() -> None:
    seen = _on_a_terminal(3600.0, until=b"")
    assert b"reading" not in seen
    assert b"done" in seen
