"""`slurm-jobs doctor [SPEC]`: find problems of a site before they cost time, with remedies."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    add_overrides,
    path_of,
    positive,
    positive_up_to,
    print_json,
    shown_path,
)

if TYPE_CHECKING:
    from slurm_jobs.operations.doctor import Found, Wanted

_WAIT_MIN = 10
_MOST_WAIT_MIN = 7 * 24 * 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "spec",
        metavar="SPEC",
        type=path_of,
        nargs="?",
        help="the YAML file whose cluster, nodes, Python and folders are meant; left out, Slurm "
        "where this machine has it, else this machine alone",
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help="the stage for whose resources and Python the nodes are checked; default: the "
        "training",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=positive,
        help="how many nodes are checked; default: 2 where one job can have them",
    )
    _add_jobs(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also print the findings of passed checks, not only names",
    )
    add_overrides(parser)
    add_json(parser)


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add options on which jobs are submitted, and how long to wait for them."""
    parser.add_argument(
        "--no-nodes", action="store_true", help="do not submit the job that checks nodes"
    )
    parser.add_argument(
        "--drill",
        action="store_true",
        help="submit a job of two minutes, too, that is stopped, saves, and is requeued",
    )
    parser.add_argument(
        "--wait",
        metavar="MINUTES",
        type=positive_up_to(_MOST_WAIT_MIN),
        default=_WAIT_MIN,
        help="longest that a job may wait in the queue before it is cancelled; default: "
        f"{_WAIT_MIN}",
    )


def run(options: argparse.Namespace) -> int:
    """Check, print, and return 1 if there is a problem, 3 if Slurm did not answer."""
    from slurm_jobs.operations.doctor import Found, examine
    from slurm_jobs.operations.doctor_jobs import ends_as_interrupts

    found = Found()
    wanted = _wanted(options)
    say, hush = _progress()
    try:
        with ends_as_interrupts():
            examine(wanted, found, say)
    except KeyboardInterrupt:
        hush()
        _print(found, options)
        print("\ninterrupted; its jobs are cancelled", file=sys.stderr)
        return 130
    hush()
    _print(found, options)
    if found.unreachable:
        return 3
    return 1 if any(check.standing == "problem" for check in found.checks) else 0


def _wanted(options: argparse.Namespace) -> Wanted:
    """Return the request; raises InputError, SpecError, or SchedulerError without Slurm."""
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.operations.doctor import Wanted
    from slurm_jobs.operations.doctor_specs import load_or_make
    from slurm_jobs.operations.load import profile_of
    from slurm_jobs.operations.one_stage import source_stage

    loaded = load_or_make(options.spec, options.overrides)
    profile = profile_of(loaded)
    if (options.nodes or 1) > 1 and profile.scheduler == "local":
        message = f"--nodes {options.nodes}: `cluster: local` is this machine alone"
        raise InputError(message)
    return Wanted(
        loaded=loaded,
        profile=profile,
        source=source_stage(loaded.spec, options.stage),
        is_given=options.spec is not None,
        num_nodes=options.nodes,
        with_nodes=not options.no_nodes,
        with_drill=options.drill,
        wait_s=options.wait * 60.0,
    )


def _progress() -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return functions that show what is being checked, and erase it: a line on a terminal."""
    is_terminal = sys.stderr.isatty()
    began_s, shown = time.monotonic(), [""]

    def say(text: str) -> None:
        if is_terminal:
            line = f"[{time.monotonic() - began_s:4.0f} s] {text}"
            print(f"\r\x1b[K{line[:79]}", end="", file=sys.stderr, flush=True)
        elif text != shown[0]:
            print(f"[{time.monotonic() - began_s:4.0f} s] {text}", file=sys.stderr, flush=True)
        shown[0] = text

    def hush() -> None:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return say, hush


def _print(found: Found, options: argparse.Namespace) -> None:
    if options.json:
        print_json(doctor_values(found))
        return
    from slurm_jobs.doctor.texts import lines_of

    here = f"{Path.cwd()}/"  # commands are shorter with relative paths
    checks = [dataclasses.replace(c, remedy=c.remedy.replace(here, "")) for c in found.checks]
    for line in lines_of(checks, _width(), in_words=options.all):
        print(line)
    for run_dir in found.run_dirs:
        print(f"kept for a day: {shown_path(run_dir)}")


def _width() -> int:
    from slurm_jobs.cli.output import console

    return min(console().width, 100)


def doctor_values(found: Found) -> dict[str, Any]:
    """Return all checks, worst first, as JSON values."""
    from slurm_jobs.doctor.texts import sorted_checks

    return {
        "checks": [dataclasses.asdict(check) for check in sorted_checks(found.checks)],
        "unreachable": found.unreachable,
        "run_dirs": [str(path) for path in found.run_dirs],
    }
