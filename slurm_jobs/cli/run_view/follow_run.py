"""Watch a run until it ends: a live view on a terminal, lines of changes elsewhere.

It only reads: an interrupt ends `watch`, never the run.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.exit_codes import INTERRUPTED_EXIT_CODE
from slurm_jobs.cli.run_view.problems import FailedAttempt, source_lines
from slurm_jobs.cli.run_view.run_snapshot import RunView, read_view
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.run.polling import in_doubt, views_until_over
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.status.run_status import RunStatus

if TYPE_CHECKING:
    from rich.console import Console

from slurm_jobs.cli.exit_codes import exit_code
from slurm_jobs.cli.run_view.live_view import live_view
from slurm_jobs.cli.run_view.stages_table import reason_to_wait, tasks_text

PROGRESS_INTERVAL_S = 30.0
"""Interval between lines that only report progress."""


def watch(
    run_dir: Path, *, quiet: bool, prints_failures: bool = True
) -> tuple[RunStatus | None, int]:
    """Follow a run until it ends; return its status (None if the user interrupted) and exit code.

    The caller prints the failures at the end, so the last view has only their number.
    `prints_failures`: without a terminal, print each one when it is first seen, too.
    """
    from slurm_jobs.cli.terminal.console import page_console

    console = page_console()
    try:
        if quiet:
            (last,) = deque(_views(run_dir), maxlen=1)
            status = last.status
        elif console.is_terminal and not console.is_dumb_terminal:
            status = _follow_live(run_dir, console)
        else:
            status = _follow_lines(run_dir, prints_failures=prints_failures)
    except KeyboardInterrupt:
        folder = shown_path(run_dir)
        print(
            f"\nno longer watching; the run continues.\nnext: {command_text('status', folder)}\n"
            f"  or: {command_text('cancel', folder)}",
            file=sys.stderr,
        )
        return None, INTERRUPTED_EXIT_CODE
    return status, exit_code(status)


def _views(
    run_dir: Path, *, with_failure: bool = False, reported: Collection[FailedAttempt] | None = None
) -> Iterator[RunView]:
    return views_until_over(
        lambda: read_view(run_dir, with_failure=with_failure, reported=reported),
        lambda view: view.status,
        lambda view, problem: replace(view, status=in_doubt(view.status, problem)),
        read_meta(RunPaths(run_dir)).scheduler,
    )


def _follow_live(run_dir: Path, console: Console) -> RunStatus:
    from rich.live import Live

    views = _views(run_dir, with_failure=True)
    view, ended = next(views), False
    # Drawn by a thread once a second, so that ages grow during a query.
    with Live(
        get_renderable=lambda: live_view(view, console, now_unix_s=time.time(), is_over=ended),
        console=console,
        refresh_per_second=1,
    ) as live:
        live.refresh()
        for view in views:  # noqa: B007 - the function above shows it
            live.refresh()
        ended = True
        view = replace(view, failure=None)
    return view.status


def _follow_lines(run_dir: Path, *, prints_failures: bool) -> RunStatus:
    shown: dict[str, str] = {}
    reported: set[FailedAttempt] = set()
    began_s = last_progress_s = time.monotonic()
    for view in _views(run_dir, reported=reported if prints_failures else None):
        now_s = time.monotonic()
        is_time = now_s - last_progress_s > PROGRESS_INTERVAL_S
        last_progress_s = now_s if is_time else last_progress_s
        lines = lines_of(view)
        changes = []
        for name, line in lines.items():
            progress = view.progress.get(name, "") if is_time else ""
            if shown.get(name) != line or progress:
                changes.append(f"{line} {progress}".rstrip())
        if not reported.issuperset(view.new_failures.attempts):  # otherwise it repeats the last one
            changes += view.new_failures.lines
        reported |= view.new_failures.attempts
        for change in changes:
            print(f"[{now_s - began_s:6.1f} s] {change}", flush=True)
        shown = lines
    return view.status


def lines_of(view: RunView) -> dict[str, str]:
    """Return a line for each stage, and for each source that does not answer.

    For example `train: running (0/1, 1 running)`; with the reason for stranded stages.
    """
    lines = {}
    for stage in view.status.stages:
        is_stuck = stage.status == "stranded" or any(part.wait for part in stage.slices)
        why = reason_to_wait(stage) if is_stuck else ""
        line = f"{stage.stage.name}: {stage.status} ({tasks_text(stage)})"
        lines[stage.stage.name] = f"{line}: {why}" if why else line
    return lines | {f"source {n}": text for n, text in enumerate(source_lines(view.status))}
