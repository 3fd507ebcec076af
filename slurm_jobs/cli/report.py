"""`slurm-jobs report RUN`: where the time went, in the terminal, as a page and as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from slurm_jobs.cli.arguments import add_json, add_run, print_json, shown_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Make the report anew from the records, and print it."""
    from slurm_jobs.run.find import find_run

    write_report(find_run(options.run), as_json=options.json)
    return 0


def write_report(run_dir: Path, *, as_json: bool = False) -> None:
    """Write page and JSON into the run folder, and print one of them."""
    from rich.console import Console

    from slurm_jobs.report.json_form import report_to_json
    from slurm_jobs.report.stage import build_and_write
    from slurm_jobs.report.terminal import print_report
    from slurm_jobs.run.observe import accounting_of
    from slurm_jobs.run.paths import RunPaths

    answer = accounting_of(run_dir)
    paths = RunPaths(run_dir)
    report = build_and_write(paths, answer.starts)
    if as_json:
        print_json(report_to_json(report))
        return
    print_report(report, Console())
    for problem in answer.problems:
        print(f"could not be asked: {problem}")
    print(f"\npage: {shown_path(paths.report_html)}")
