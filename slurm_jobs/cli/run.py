"""`slurm-jobs run SPEC`: submit, follow to the end, and print the report.

Following is watching only: an interrupt ends the watching, never the run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, add_spec, command_text, shown_path
from slurm_jobs.cli.status import exit_code, problem_lines, progress_text, status_table, tasks_text
from slurm_jobs.cli.submit import submit_spec

if TYPE_CHECKING:
    from rich.console import Console

    from slurm_jobs.reconcile import RunStatus, StageStatus

INTERVAL_S = {"local": 0.5, "slurm": 5.0}
"""Between two looks; Slurm's controller is everybody's."""
GOING = ("running", "waiting")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_spec(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Submit and follow; exit code 1 if the run failed."""
    submission = submit_spec(options)
    run_dir = submission.paths.run_dir
    folder = shown_path(run_dir)
    if not options.json:
        print(f"run folder: {folder}\n")
    try:
        status = follow(run_dir, quiet=options.json)
    except KeyboardInterrupt:
        print(
            f"\nno longer watching; the run goes on.\nnext: {command_text('status', folder)}\n"
            f"  or: {command_text('cancel', folder)}",
            file=sys.stderr,
        )
        return 130
    if options.json:
        from slurm_jobs.cli.arguments import print_json
        from slurm_jobs.cli.status import status_values

        print_json(status_values(run_dir, status))
        return exit_code(status)
    _finish(run_dir, status)
    return exit_code(status)


def _finish(run_dir: Path, status: RunStatus) -> None:
    for line in problem_lines(run_dir, status):
        print(line)
    from slurm_jobs.cli.report import write_report

    print()
    write_report(run_dir)
    if status.status != "completed":
        return
    folder = shown_path(run_dir)
    last = next(
        stage.stage.name for stage in reversed(status.stages) if stage.stage.run != "report"
    )
    print("\nTry next:")
    print(f"  {command_text('status', folder)}")
    print(f"  {command_text('logs', folder, last, '--tail', '20')}")
    print(f"  {command_text('report', folder, '--json')}")


def follow(run_dir: Path, *, quiet: bool) -> RunStatus:
    """Look until nothing runs or waits; a live table on a terminal, lines of change elsewhere."""
    from rich.console import Console

    console = Console()
    if quiet or not console.is_terminal:
        return _follow_lines(run_dir, quiet=quiet)
    return _follow_live(run_dir, console)


def _look(run_dir: Path) -> tuple[RunStatus, float]:
    from slurm_jobs.run.observe import status_of
    from slurm_jobs.run.paths import RunPaths
    from slurm_jobs.run.store import read_meta

    return status_of(run_dir), INTERVAL_S[read_meta(RunPaths(run_dir)).scheduler]


def is_over(status: RunStatus) -> bool:
    """Nothing runs, and nothing waits that could start; a source that is silent proves nothing."""
    return status.status not in GOING and not status.problems


def _follow_live(run_dir: Path, console: Console) -> RunStatus:
    from rich.live import Live

    status, interval_s = _look(run_dir)
    with Live(status_table(run_dir, status), console=console, auto_refresh=False) as live:
        while not is_over(status):
            time.sleep(interval_s)
            status, _ = _look(run_dir)
            live.update(status_table(run_dir, status), refresh=True)
    return status


def _follow_lines(run_dir: Path, *, quiet: bool) -> RunStatus:
    shown: dict[str, str] = {}
    began_s = time.monotonic()
    last_progress_s = began_s
    while True:
        status, interval_s = _look(run_dir)
        progress = time.monotonic() - last_progress_s > 30
        last_progress_s = time.monotonic() if progress else last_progress_s
        for stage in status.stages if not quiet else ():
            line = _line(stage)
            if shown.get(stage.stage.name) != line:
                shown[stage.stage.name] = line
                print(f"[{time.monotonic() - began_s:6.1f} s] {line}", flush=True)
            elif progress and stage.status == "running" and stage.stage.num_slices == 1:
                detail = progress_text(run_dir, stage.stage.name, stage.slices[0])
                print(f"[{time.monotonic() - began_s:6.1f} s] {line} {detail}", flush=True)
        if is_over(status):
            return status
        time.sleep(interval_s)


def _line(stage: StageStatus) -> str:
    return f"{stage.stage.name}: {stage.status} ({tasks_text(stage)})"
