"""`slurm-jobs scaling RUN RUN ...`: show the speedup of more GPUs, and check the baseline."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, command_text, print_json, shown_path
from slurm_jobs.cli.compare import add_training, measured, refuse_repeated, runs_of

if TYPE_CHECKING:
    from slurm_jobs.comparison.model import RunMeasure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs on different numbers of GPUs, and repeats"
    )
    add_training(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, and print; exit code 1 if nothing could be compared."""
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.comparison.scaling import scale

    run_dirs = [run_dir for words in options.runs for run_dir in runs_of(words)]
    refuse_repeated(run_dirs)
    runs = measured(run_dirs, options.stage, options.warmup_steps)
    try:
        found = scale(runs)
    except ValueError as error:
        raise InputError(str(error)) from error
    from slurm_jobs.comparison.scaling_terminal import headline, render

    steps = [] if found.series else next_steps(run_dirs, runs)
    if options.json:
        lines = [headline(series) for series in found.series]
        print_json({"headlines": lines, **dataclasses.asdict(found), "next": steps})
        return 0 if found.series else 1
    from slurm_jobs.cli.output import console

    console().print(render(found))
    for line in steps:
        print(line)
    return 0 if found.series else 1


def next_steps(run_dirs: Sequence[Path], runs: Sequence[RunMeasure]) -> list[str]:
    """Return what to type if no run is left as a baseline."""
    num_ranks = runs[0].num_ranks
    ranks = [run.num_ranks for run in runs]
    unlike = next(where for where, num in zip(run_dirs, ranks, strict=True) if num != num_ranks)
    compare = command_text("compare", shown_path(run_dirs[0]), shown_path(unlike))
    resources = f"stages.{runs[0].stage}.resources"
    return [
        "Nothing is left to compare: no two runs on different numbers of ranks are alike otherwise",
        f"next: {compare}  # in what they differ",
        f"then: submit one and the same spec on each number of ranks (--set {resources}.nodes=2)",
    ]
