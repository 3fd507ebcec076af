"""`slurm-jobs scaling RUN RUN ...`: what more GPUs gave, and whether the baseline is sound."""

from __future__ import annotations

import argparse
import dataclasses

from slurm_jobs.cli.arguments import add_json, print_json
from slurm_jobs.cli.compare import add_training, refuse_repeated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs on different numbers of GPUs, and repeats"
    )
    add_training(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, and print; exit code 0 whatever was found."""
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.comparison.measure import measure
    from slurm_jobs.comparison.scaling import scale
    from slurm_jobs.run.find import find_run

    run_dirs = [find_run(name) for name in options.runs]
    refuse_repeated(run_dirs)
    measured = [
        measure(run_dir, stage=options.stage, warmup_steps=options.warmup_steps)
        for run_dir in run_dirs
    ]
    try:
        found = scale(measured)
    except ValueError as error:
        raise InputError(str(error)) from error
    from slurm_jobs.comparison.scaling_terminal import headline, render

    if options.json:
        lines = [headline(series) for series in found.series]
        print_json({"headlines": lines, **dataclasses.asdict(found)})
    else:
        from slurm_jobs.cli.output import console

        console().print(render(found))
    return 0
