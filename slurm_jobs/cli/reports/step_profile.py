"""`slurm-jobs profile RUN`: show computation, communication and idle time of profiled steps."""

from __future__ import annotations

import argparse
import dataclasses

from slurm_jobs.cli.arguments import add_run, positive, whole
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("--stage", metavar="NAME", help="the training, where a run has several")
    parser.add_argument("--rank", metavar="N", type=whole, help="default: the first that recorded")
    parser.add_argument(
        "--operators", metavar="N", type=positive, default=12, help="rows of the table (default 12)"
    )


def run_profile(options: argparse.Namespace) -> int:
    """Read the newest profile and print it."""
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.progress_display import working
    from slurm_jobs.formats.timings.profiler_files import operators_path, read_operators
    from slurm_jobs.report.profiles.found_trace import find_trace
    from slurm_jobs.report.profiles.occupancy import occupancy
    from slurm_jobs.report.profiles.profile_trace import read_trace

    found_trace = find_trace(named_run(options.run), options.stage, options.rank)
    path = found_trace.path
    operators_file = operators_path(path.parent, found_trace.rank)
    with working(f"reading {path.name}"):
        trace = read_trace(path)
        table = read_operators(operators_file) if operators_file.is_file() else None
        try:
            profile = occupancy(trace)
        except ValueError as error:
            message = f"{path}: {error}"
            raise InputError(message) from error
    if options.json:
        steps = [(step[0], occupancy(trace, [step])) for step in trace.steps]
        print_json(
            {
                "trace": str(path),
                "has_device": trace.has_device,
                "occupancy": {**dataclasses.asdict(profile), "exposed_s": profile.exposed_s},
                "steps": [{"step": step, **dataclasses.asdict(each)} for step, each in steps],
                "operators": dataclasses.asdict(table) if table is not None else None,
            }
        )
        return 0
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.report.profiles.profile_text import render

    title = f"{found_trace.title}: {number_text(len(trace.steps), 'step')}"
    console().print(render(title, trace, table, num_operators=options.operators))
    return 0
