"""`slurm-jobs compare A B`: test whether B is faster than A, and list different settings."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, print_json, whole
from slurm_jobs.common.warmup import WARMUP_STEPS

if TYPE_CHECKING:
    from slurm_jobs.comparison.model import RunMeasure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    words = "a run, or repeats of one with commas between them"
    parser.add_argument("first", metavar="A", help=words)
    parser.add_argument("second", metavar="B", help=words)
    parser.add_argument("more", metavar="", nargs="*", default=[], help=argparse.SUPPRESS)
    add_training(parser)
    add_json(parser)


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add --stage and --warmup-steps, which select the steps."""
    parser.add_argument("--stage", metavar="NAME", help="the training, where runs have several")
    parser.add_argument(
        "--warmup-steps",
        metavar="N",
        type=whole,
        default=WARMUP_STEPS,
        help=f"steps at the start of each attempt that are left out (default: {WARMUP_STEPS})",
    )


def run(options: argparse.Namespace) -> int:
    """Compare, and print; the exit code is 0 for any verdict."""
    from slurm_jobs.comparison.compare import compare
    from slurm_jobs.comparison.sentences import headline

    _refuse_more(options)
    arms = [runs_of(arm) for arm in (options.first, options.second)]
    refuse_repeated([run_dir for arm in arms for run_dir in arm])
    first, second = (measured(arm, options.stage, options.warmup_steps) for arm in arms)
    found = compare(first, second)
    if options.json:
        print_json({"headline": headline(found), **dataclasses.asdict(found)})
    else:
        from slurm_jobs.cli.output import console
        from slurm_jobs.comparison.terminal import render

        screen = console()
        screen.print(render(found, width=screen.width))
    return 0


def measured(run_dirs: Sequence[Path], stage: str | None, warmup_steps: int) -> list[RunMeasure]:
    """Return what the records say of each run; show on a terminal which one is being read."""
    from slurm_jobs.cli.progress_bar import working
    from slurm_jobs.comparison.measure import measure

    found = []
    for run_dir in run_dirs:
        with working(f"reading the steps of {run_dir.name}"):
            found.append(measure(run_dir, stage=stage, warmup_steps=warmup_steps))
    return found


def _refuse_more(options: argparse.Namespace) -> None:
    """Refuse repeats with spaces between them.

    Raises:
        InputError: there are more than two arms.
    """
    from slurm_jobs.common.errors import InputError

    if options.more:
        given = [options.first, options.second, *options.more]
        message = (
            f"compare takes two arms, and here are {len(given)}; repeats of one have commas "
            f"between them: {','.join(given[: len(given) // 2])} "
            f"{','.join(given[len(given) // 2 :])}"
        )
        raise InputError(message)


def runs_of(arm: str) -> list[Path]:
    """Return the runs of one arm: `a,b` are two, a folder with a comma in its name is one.

    Raises:
        InputError: there is no such run, or none is named.
    """
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.run.find import find_run

    names = [arm] if Path(arm).exists() else [name for name in arm.split(",") if name]
    if not names:
        message = f"`{arm}` names no run: give one, or several with commas between them"
        raise InputError(message)
    return [find_run(name) for name in names]


def refuse_repeated(run_dirs: Sequence[Path]) -> None:
    """Refuse a run that is given twice, or as a copy: it would have no spread.

    Raises:
        InputError: one is.
    """
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.common.files import read_json
    from slurm_jobs.run.paths import RunPaths

    seen: set[Path] = set()
    by_id: dict[str, Path] = {}
    for run_dir in run_dirs:
        if run_dir.resolve() in seen:
            message = f"{run_dir.name} is given twice; repeats must be separate runs"
            raise InputError(message)
        seen.add(run_dir.resolve())
        run_id = str(read_json(RunPaths(run_dir).run_json)["run_id"])
        if run_id in by_id:
            message = (
                f"{run_dir} is a copy of {by_id[run_id]}: both are run {run_id}; repeats must be "
                "separate runs"
            )
            raise InputError(message)
        by_id[run_id] = run_dir
