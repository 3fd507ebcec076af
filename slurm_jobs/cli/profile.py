"""`slurm-jobs profile RUN`: what the steps that were profiled computed, communicated and idled."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from slurm_jobs.cli.arguments import add_json, add_run, positive, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    parser.add_argument("--stage", metavar="NAME", help="the training, where a run has several")
    parser.add_argument("--rank", metavar="N", type=int, help="default: the first that recorded")
    parser.add_argument(
        "--operators", metavar="N", type=positive, default=12, help="rows of the table (default 12)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read the newest profile and print what it says."""
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.common.operator_table import operators_path, read_operators
    from slurm_jobs.profiles.occupancy import occupancy
    from slurm_jobs.profiles.trace import read_trace
    from slurm_jobs.run.find import find_run

    path, rank = find_profile(find_run(options.run), options.stage, options.rank)
    trace = read_trace(path)
    beside = operators_path(path.parent, rank)
    table = read_operators(beside) if beside.is_file() else None
    try:
        found = occupancy(trace)
    except ValueError as error:
        message = f"{path}: {error}"
        raise InputError(message) from error
    if options.json:
        steps = [
            {"step": step[0], **dataclasses.asdict(occupancy(trace, [step]))}
            for step in trace.steps
        ]
        print_json(
            {
                "trace": str(path),
                "has_device": trace.has_device,
                "occupancy": {**dataclasses.asdict(found), "exposed_s": found.exposed_s},
                "steps": steps,
                "operators": dataclasses.asdict(table) if table is not None else None,
            }
        )
        return 0
    from slurm_jobs.cli.output import console
    from slurm_jobs.profiles.terminal import render

    title = f"{path.parent.parent.name}, {path.parent.name}, rank {rank}: {len(trace.steps)} steps"
    console().print(render(title, trace, table, num_operators=options.operators))
    return 0


def find_profile(run_dir: Path, stage: str | None, rank: int | None) -> tuple[Path, int]:
    """The trace of the newest attempt that recorded one, and whose it is.

    Raises:
        InputError: there is none, or the stage must be named.
    """
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.run.paths import RunPaths

    folder = RunPaths(run_dir).timing_dir("x", 0, 1).parents[1]
    pattern = f"*/rank-{'*' if rank is None else f'{rank:05d}'}.trace.json.gz"
    stages = {
        path.name: sorted(path.glob(pattern))
        for path in (sorted(folder.iterdir()) if folder.is_dir() else [])
        if stage in {None, path.name}
    }
    with_traces = {name: paths for name, paths in stages.items() if paths}
    if len(with_traces) > 1:
        message = f"stages {', '.join(with_traces)} have profiles; name one with --stage"
        raise InputError(message)
    if not with_traces:
        of_what = f"stage {stage}" if stage else f"run {run_dir.name}"
        whose = "" if rank is None else f" of rank {rank}"
        message = (
            f"{of_what} has no profile{whose}: set `profile: {{steps: [20, 40]}}` in the config of "
            "its `run: train` and make these steps, then look again"
        )
        raise InputError(message)
    (paths,) = with_traces.values()
    newest = max(path.parent.name for path in paths)
    path = next(path for path in paths if path.parent.name == newest)
    return path, int(path.name.split(".")[0].removeprefix("rank-"))
