"""`slurm-jobs watch RUN`: show a live view of a run until it ends."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, add_run, command_text, print_json, shown_path

if TYPE_CHECKING:
    from slurm_jobs.reconcile import RunStatus

INTERRUPTED_EXIT_CODE = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Watch, and print at the end what failed; the exit code is that of `status`."""
    from slurm_jobs.run.find import find_run

    run_dir = find_run(options.run)
    status, code = watch(run_dir, quiet=options.json)
    if status is None:
        return code
    if options.json:
        from slurm_jobs.cli.status import status_values

        print_json(status_values(run_dir, status, time.time()))
        return code
    for line in end_lines(run_dir, status):
        print(line)
    return code


def watch(
    run_dir: Path, *, quiet: bool, tells_failures: bool = True
) -> tuple[RunStatus | None, int]:
    """Follow a run; return its final status (None if the user stopped watching) and exit code.

    Args:
        run_dir: the run's folder.
        quiet: show nothing.
        tells_failures: see `follow`.
    """
    from slurm_jobs.cli.follow import follow
    from slurm_jobs.cli.status import exit_code

    status = follow(run_dir, quiet=quiet, tells_failures=tells_failures)
    return status, INTERRUPTED_EXIT_CODE if status is None else exit_code(status)


def end_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """Return what failed and what to type next."""
    from slurm_jobs.cli.problems import problem_lines

    folder = shown_path(run_dir)
    lines = problem_lines(run_dir, status)
    if status.status == "completed":
        lines.append(f"next: {command_text('report', folder)}")
    elif status.status == "waiting":
        lines.append("no job of this run is queued or running")
        lines.append(f"next: {command_text('resume', folder)}")
    return lines
