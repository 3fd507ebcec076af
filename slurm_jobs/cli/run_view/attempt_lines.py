"""Attempts of a stage on a terminal: a table, why each ended, and what that cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_jobs.report.attempts.attempt_losses import loss_text
from slurm_jobs.report.attempts.attempt_table import (
    attempt_rows,
    others_text,
    reason_lines,
    shown_entries,
)
from slurm_jobs.report.values.attempt_model import StageAttempts

if TYPE_CHECKING:
    from rich.console import Console


def print_attempts(attempts: StageAttempts, screen: Console, now_unix_s: float) -> None:
    """Print the table of a stage's attempts; a line if none needs an explanation."""
    from slurm_jobs.cli.terminal.console import table_of

    def say(line: str) -> None:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)

    if not attempts.entries:
        say(f"no slice of {attempts.stage} was tried again, failed or was cancelled")
        return
    is_array = attempts.num_slices > 1
    shown = shown_entries(attempts.entries)
    columns, rows = attempt_rows(
        shown, lambda unix_s: _clock(unix_s, now_unix_s), is_array=is_array
    )
    say(f"attempts of {attempts.stage}")
    screen.print(table_of(columns, rows))
    for line in reason_lines(shown, is_array=is_array):
        say(line)
    if more := others_text(attempts, shown):
        say(f"{more}; --json has all")
    if attempts.lost.seconds > 0:
        where = " by these slices" if is_array else ""
        say(f"lost{where}: {loss_text(attempts.lost)}")


def _clock(unix_s: float, now_unix_s: float) -> str:
    """Return a time to the second in this machine's zone, with the date if it is not today."""
    moment, now = time.localtime(unix_s), time.localtime(now_unix_s)
    return time.strftime("%H:%M:%S" if moment[:3] == now[:3] else "%d %b %H:%M:%S", moment)
