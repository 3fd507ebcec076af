"""`slurm-jobs scaling RUN RUN ...`: show the speedup of more GPUs, and check the baseline."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.reports.measured_runs import (
    add_training,
    measured,
    refuse_repeated,
    runs_of_arm,
)
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

if TYPE_CHECKING:
    from slurm_jobs.report.comparison.comparison_model import RunMeasure


def add_scaling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs on different numbers of GPUs, and repeats"
    )
    add_training(parser)


def run_scaling(options: argparse.Namespace) -> int:
    """Measure, and print; exit code 1 if nothing could be compared."""
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.report.comparison.scaling import scale
    from slurm_jobs.report.comparison.scaling_text import render_scaling, scaling_headline

    run_dirs = [run_dir for words in options.runs for run_dir in runs_of_arm(words)]
    refuse_repeated(run_dirs)
    runs = measured(run_dirs, options.stage, options.warmup_steps)
    try:
        scaling = scale(runs)
    except ValueError as error:
        raise InputError(str(error)) from error
    steps = [] if scaling.series else _next_steps(run_dirs, runs)
    if options.json:
        lines = [scaling_headline(series) for series in scaling.series]
        print_json({"headlines": lines, **dataclasses.asdict(scaling), "next": steps})
    else:
        console().print(render_scaling(scaling))
        for line in steps:
            print(line)
    return 0 if scaling.series else 1


def _next_steps(run_dirs: Sequence[Path], runs: Sequence[RunMeasure]) -> list[str]:
    """Return the next commands if no run is left as a baseline."""
    num_ranks = runs[0].num_ranks
    ranks = [run.num_ranks for run in runs]
    unlike = next(where for where, num in zip(run_dirs, ranks, strict=True) if num != num_ranks)
    compare = command_text("compare", shown_path(run_dirs[0]), shown_path(unlike))
    resources = f"stages.{runs[0].stage}.resources"
    return [
        "Nothing to compare: no two runs on different numbers of ranks are otherwise equal",
        f"next: {compare}  # shows the differences",
        f"then: submit the same spec on each number of ranks (--set {resources}.nodes=2)",
    ]
