"""`slurm-jobs doctor [SPEC]`: find problems of a site before they cost time, with remedies."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

from slurm_jobs.cli.arguments import add_overrides, path_of, positive, positive_up_to
from slurm_jobs.cli.exit_codes import INTERRUPTED_EXIT_CODE
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import shown_path

_WAIT_MIN = 10
_MOST_WAIT_MIN = 7 * 24 * 60


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--all",
        action="store_true",
        help="also print the findings of passed checks, not only names",
    )
    add_overrides(parser)


def run_doctor(options: argparse.Namespace) -> int:
    """Check, print, and return 1 if there is a problem, 3 if Slurm did not answer."""
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.commands.cluster_limits import profile_of
    from slurm_jobs.commands.node_checks.check_specs import load_or_make
    from slurm_jobs.commands.node_checks.doctor_runs import termination_as_interrupt
    from slurm_jobs.commands.node_checks.one_stage_spec import source_stage
    from slurm_jobs.commands.node_checks.site_check import CheckResults, SiteParts, examine
    from slurm_jobs.nodes.doctor.check_text import lines_of, sorted_checks

    loaded = load_or_make(options.spec, options.overrides)
    profile = profile_of(loaded)
    if (options.nodes or 1) > 1 and profile.scheduler == "local":
        message = f"--nodes {options.nodes}: `cluster: local` is this machine alone"
        raise InputError(message)
    wanted = SiteParts(
        loaded=loaded,
        profile=profile,
        source=source_stage(loaded.spec, options.stage),
        is_given=options.spec is not None,
        num_nodes=options.nodes,
        with_nodes=not options.no_nodes,
        with_drill=options.drill,
        wait_s=options.wait * 60.0,
    )
    results, is_interrupted = CheckResults(), False
    say, hush = _progress()
    try:
        with termination_as_interrupt():
            examine(wanted, results, say)
    except KeyboardInterrupt:
        is_interrupted = True
    hush()
    if options.json:
        checks = [dataclasses.asdict(check) for check in sorted_checks(results.checks)]
        run_dirs = [str(path) for path in results.run_dirs]
        print_json({"checks": checks, "unreachable": results.unreachable, "run_dirs": run_dirs})
    else:
        here = f"{Path.cwd()}/"  # commands are shorter with relative paths
        shown = [dataclasses.replace(c, remedy=c.remedy.replace(here, "")) for c in results.checks]
        for line in lines_of(shown, min(console().width, 100), in_words=options.all):
            print(line)
        for run_dir in results.run_dirs:
            print(f"this run is kept for a day: {shown_path(run_dir)}")
    if is_interrupted:
        print("\ninterrupted; its jobs are cancelled", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    if results.unreachable:
        return 3
    return 1 if any(check.standing == "problem" for check in results.checks) else 0


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
