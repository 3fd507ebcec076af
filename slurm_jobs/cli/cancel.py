"""`slurm-jobs cancel RUN`: cancel all of a run's jobs, or those of one stage."""

from __future__ import annotations

import argparse
import sys

from slurm_jobs.cli.arguments import add_json, add_run, print_json
from slurm_jobs.common.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    parser.add_argument("--stage", help="only this stage's jobs")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Ask once, then cancel."""
    from slurm_jobs.operations.cancel import cancel
    from slurm_jobs.run.find import find_run

    run_dir = find_run(options.run)
    what = f"stage `{options.stage}` of {run_dir.name}" if options.stage else run_dir.name
    if not options.yes and not _confirmed(what):
        if options.json:
            print_json({"run_dir": str(run_dir), "cancelled": []})
        else:
            print("nothing was cancelled")
        return 0
    ids = cancel(run_dir, stage=options.stage)
    if options.json:
        print_json({"run_dir": str(run_dir), "cancelled": ids})
    elif ids:
        print(f"cancelled: {' '.join(ids)}")
    else:
        print("nothing to cancel: no job is queued or running")
    return 0


def _confirmed(what: str) -> bool:
    """Whether somebody says yes. The end of the input (Ctrl-D) is a no."""
    if not sys.stdin.isatty():
        message = f"cancel asks before it ends {what}, and nobody can answer here; add --yes"
        raise InputError(message)
    # Not on standard output, which may be a file, or JSON that a program reads.
    print(f"cancel {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in {"y", "yes"}
