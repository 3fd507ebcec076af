"""`slurm-jobs compare A B`: test whether B is faster than A, and list different settings."""

from __future__ import annotations

import argparse
import dataclasses

from slurm_jobs.cli.reports.measured_runs import (
    add_training,
    measured,
    refuse_repeated,
    runs_of_arm,
)
from slurm_jobs.cli.terminal.console import print_json


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    words = "a run, or repeats of one with commas between them"
    parser.add_argument("first", metavar="A", help=words)
    parser.add_argument("second", metavar="B", help=words)
    parser.add_argument("more", metavar="", nargs="*", default=[], help=argparse.SUPPRESS)
    add_training(parser)


def run_compare(options: argparse.Namespace) -> int:
    """Compare, and print; the exit code is 0 for any verdict.

    Raises:
        InputError: there are more than two arms (repeats separated by spaces).
    """
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.report.comparison.compare import compare
    from slurm_jobs.report.comparison.compare_text import render_comparison
    from slurm_jobs.report.comparison.comparison_words import headline

    if options.more:
        given = [options.first, options.second, *options.more]
        half = len(given) // 2
        message = (
            f"compare takes two arms, and got {len(given)}; separate repeats of one arm by "
            f"commas: {','.join(given[:half])} {','.join(given[half:])}"
        )
        raise InputError(message)
    arms = [runs_of_arm(arm) for arm in (options.first, options.second)]
    refuse_repeated([run_dir for arm in arms for run_dir in arm])
    first, second = (measured(arm, options.stage, options.warmup_steps) for arm in arms)
    comparison = compare(first, second)
    if options.json:
        print_json({"headline": headline(comparison), **dataclasses.asdict(comparison)})
    else:
        screen = console()
        screen.print(render_comparison(comparison, width=screen.width))
    return 0
