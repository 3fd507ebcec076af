"""`slurm-jobs cancel RUN`: cancel all of a run's jobs, or those of one stage."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from slurm_jobs.cli.arguments import add_json, add_run, print_json
from slurm_jobs.common.errors import InputError

NOTHING = "nothing to cancel: no job is queued or running"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("--stage", help="only this stage's jobs")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check whether there is anything to cancel, ask once, then cancel."""
    from slurm_jobs.operations.cancel import cancel, is_anything_to_cancel
    from slurm_jobs.run.find import find_run

    run_dir, stage = find_run(options.run), options.stage
    if not (options.yes or is_anything_to_cancel(run_dir, stage=stage)):
        return _told(run_dir, [], NOTHING, as_json=options.json)
    what = f"stage `{stage}` of {run_dir.name}" if stage else run_dir.name
    if not (options.yes or _confirmed(what)):
        return _told(run_dir, [], "nothing was cancelled", as_json=options.json)
    ids = cancel(run_dir, stage=stage)
    said = f"cancelled: {' '.join(ids)} of {run_dir.name}" if ids else NOTHING
    return _told(run_dir, ids, said, as_json=options.json)


def _told(run_dir: Path, ids: list[str], said: str, *, as_json: bool) -> int:
    if as_json:
        print_json({"run_dir": str(run_dir), "cancelled": ids})
    else:
        print(said)
    return 0


def _confirmed(what: str) -> bool:
    """Ask for confirmation. The end of the input (Ctrl-D) is a no."""
    if not sys.stdin.isatty():
        message = f"cancel asks before it ends {what}, but there is no terminal; add --yes"
        raise InputError(message)
    # Not on standard output, which may be a file, or JSON that a program reads.
    print(f"cancel {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in {"y", "yes"}
