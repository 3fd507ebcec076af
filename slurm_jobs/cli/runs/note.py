"""`slurm-jobs note RUN TEXT`: write a note on a run, which `runs` and `status` show."""

from __future__ import annotations

import argparse
import shlex

from slurm_jobs.base.errors import InputError
from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import shown_path


def add_note_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "text", metavar="TEXT", nargs="*", help="the note, one line; without it, print the note"
    )
    parser.add_argument("--remove", action="store_true", help="remove the note")


def run_note(options: argparse.Namespace) -> int:
    """Write, remove or print the note.

    Raises:
        InputError: the note cannot be written, or the run is another user's.
    """
    from slurm_jobs.run.home import anothers_run
    from slurm_jobs.run_folder.notes import read_note, remove_note, write_note
    from slurm_jobs.run_folder.paths import RunPaths

    try:
        paths = RunPaths(named_run(options.run))
    except InputError as error:
        if options.run is None or options.text or options.remove:
            raise
        text = shlex.quote(options.run)
        message = f"{error}\nif {text} is the note, name the run before it: note RUN {text}"
        raise InputError(message) from error
    changes = bool(options.text) or options.remove
    if options.text and options.remove:
        message = "--remove removes the note, and TEXT writes one: give one of both"
        raise InputError(message)
    if changes and (owner := anothers_run(paths)):
        message = f"run {paths.run_dir.name} is {owner}; only its owner writes a note on it"
        raise InputError(message)
    if options.remove:
        remove_note(paths)
    elif options.text:
        write_note(paths, " ".join(options.text))
    note = read_note(paths)
    if options.remove and not options.json:
        print(f"removed the note on {shown_path(paths.run_dir)}")
    elif options.json:
        print_json({"run_id": paths.run_dir.name, "run_dir": str(paths.run_dir), "note": note})
    else:
        print(note or f"no note on {shown_path(paths.run_dir)}")
    return 0
