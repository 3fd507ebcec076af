"""`slurm-jobs watch RUN`: show a live view of a run until it ends."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.run_view.follow_run import watch
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.run_view.status_json import status_values
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)


def run_watch(options: argparse.Namespace) -> int:
    """Watch, and print at the end what failed; the exit code is that of `status`."""
    run_dir = named_run(options.run)
    status, code = watch(run_dir, quiet=options.json)
    if status is None:
        return code
    if options.json:
        print_json(status_values(run_dir, status, time.time()))
        return code
    for line in end_lines(run_dir, status):
        print(line)
    return code


def end_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """Return what failed and what to type next."""
    folder = shown_path(run_dir)
    lines = problem_lines(run_dir, status)
    if status.status == "completed":
        lines.append(f"next: {command_text('report', folder)}")
    elif status.status == "waiting":
        lines.append("no job of this run is queued or running")
        lines.append(f"next: {command_text('resume', folder)}")
    return lines
