"""Runs that a user names to compare, and their measurements."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import whole
from slurm_jobs.formats.configs.stages import WARMUP_STEPS

if TYPE_CHECKING:
    from slurm_jobs.report.comparison.comparison_model import RunMeasure


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


def measured(run_dirs: Sequence[Path], stage: str | None, warmup_steps: int) -> list[RunMeasure]:
    """Return what the records say of each run; show on a terminal which one is being read."""
    from slurm_jobs.cli.terminal.progress_display import working
    from slurm_jobs.report.comparison.run_measures import measure

    measures = []
    for run_dir in run_dirs:
        with working(f"reading the steps of {run_dir.name}"):
            measures.append(measure(run_dir, stage=stage, warmup_steps=warmup_steps))
    return measures


def runs_of_arm(arm: str) -> list[Path]:
    """Return the runs of one arm: `a,b` are two, a folder with a comma in its name is one.

    Raises:
        InputError: there is no such run, or none is named.
    """
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.commands.run_search.find_run import find_run

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
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.base.files import read_json
    from slurm_jobs.run_folder.paths import RunPaths

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
