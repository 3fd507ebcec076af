"""Watching of a run until it ends: a live view on a terminal, lines of changes elsewhere.

It only reads: an interrupt ends the watching, never the run.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import command_text, shown_path
from slurm_jobs.cli.look import Seen, look
from slurm_jobs.cli.problems import FailedAttempt, source_lines
from slurm_jobs.cli.status_table import reason_to_wait, tasks_text
from slurm_jobs.reconcile import RunStatus, StageStatus
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_meta
from slurm_jobs.run.waiting import in_doubt, looks_until_over

if TYPE_CHECKING:
    from rich.console import Console

PROGRESS_INTERVAL_S = 30.0
"""Interval between lines that only report progress."""


def follow(run_dir: Path, *, quiet: bool, tells_failures: bool = True) -> RunStatus | None:
    """Watch until the run ends; None, after a message, if the user interrupted.

    Args:
        run_dir: the run's folder.
        quiet: show nothing.
        tells_failures: leave on the screen which slices failed; False if the caller prints them
            at the end, and only their number is shown until then.
    """
    from slurm_jobs.cli.output import page_console

    console = page_console()
    try:
        if quiet:
            (last,) = deque(_looks(run_dir), maxlen=1)
            return last.status
        if console.is_terminal and not console.is_dumb_terminal:
            return _follow_live(run_dir, console, keeps_failure=tells_failures)
        return _follow_lines(run_dir, tells_failures=tells_failures)
    except KeyboardInterrupt:
        folder = shown_path(run_dir)
        print(
            f"\nno longer watching; the run continues.\nnext: {command_text('status', folder)}\n"
            f"  or: {command_text('cancel', folder)}",
            file=sys.stderr,
        )
        return None


def _looks(
    run_dir: Path, *, with_failure: bool = False, told: Collection[FailedAttempt] | None = None
) -> Iterator[Seen]:
    scheduler = read_meta(RunPaths(run_dir)).scheduler
    return looks_until_over(
        lambda: look(run_dir, with_failure=with_failure, told=told),
        lambda seen: seen.status,
        lambda seen, problem: replace(seen, status=in_doubt(seen.status, problem)),
        scheduler,
    )


def _follow_live(run_dir: Path, console: Console, *, keeps_failure: bool) -> RunStatus:
    from rich.live import Live

    from slurm_jobs.cli.live_view import live_view

    looks = _looks(run_dir, with_failure=True)
    seen, ended = next(looks), False
    # Drawn by a thread once a second, so that ages grow during a query.
    with Live(
        get_renderable=lambda: live_view(seen, console, now_unix_s=time.time(), is_over=ended),
        console=console,
        refresh_per_second=1,
    ) as live:
        live.refresh()
        for seen in looks:  # noqa: B007 - the function above shows it
            live.refresh()
        ended = True
        if not keeps_failure:
            seen = replace(seen, failure=None)
    return seen.status


def _follow_lines(run_dir: Path, *, tells_failures: bool) -> RunStatus:
    shown: dict[str, str] = {}
    told: set[FailedAttempt] = set()
    began_s = time.monotonic()
    last_progress_s = began_s
    for seen in _looks(run_dir, told=told if tells_failures else None):
        now_s = time.monotonic()
        is_time = now_s - last_progress_s > PROGRESS_INTERVAL_S
        last_progress_s = now_s if is_time else last_progress_s
        lines = lines_of(seen)
        changes = []
        for name, line in lines.items():
            progress = seen.progress.get(name, "") if is_time else ""
            if shown.get(name) != line or progress:
                changes.append(f"{line} {progress}".rstrip())
        if not told.issuperset(seen.new_failures.attempts):  # otherwise it repeats the last one
            changes += seen.new_failures.lines
        told |= seen.new_failures.attempts
        for change in changes:
            print(f"[{now_s - began_s:6.1f} s] {change}", flush=True)
        shown = lines
    return seen.status


def lines_of(seen: Seen) -> dict[str, str]:
    """Return a line for each stage, and for each source that does not answer."""
    lines = {stage.stage.name: _stage_line(stage) for stage in seen.status.stages}
    lines |= {f"source {number}": text for number, text in enumerate(source_lines(seen.status))}
    return lines


def _stage_line(stage: StageStatus) -> str:
    """Return `train: running (0/1, 1 running)`; with the reason for stranded stages."""
    is_stuck = stage.status == "stranded" or any(part.wait for part in stage.slices)
    why = reason_to_wait(stage) if is_stuck else ""
    return f"{stage.stage.name}: {stage.status} ({tasks_text(stage)})" + (f": {why}" if why else "")
