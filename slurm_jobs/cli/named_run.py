"""Run that a command is about: the one that a user names, or the newest."""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.cli.terminal.shown_paths import shown_path


def named_run(text: str | None) -> Path:
    """Return the run that a user names; if none is named, print on stderr why this one was taken.

    Raises:
        InputError: there is no such run, or several match.
    """
    from slurm_jobs.commands.run_search.find_run import find_run
    from slurm_jobs.commands.run_search.newest_run import newest_run

    if text is not None:
        return find_run(text)
    newest = newest_run()
    shown = shown_path(newest.run_dir)
    notes = {
        "usual": None,
        "from here": f"{shown} is the newest run that was submitted from this folder, or from a "
        "spec in it or in a folder below",
        "near": f"no run was submitted from this folder; {shown} is the newest near it",
        "anywhere": f"no run was submitted from this folder; {shown} is your newest run",
    }
    if (note := notes[newest.scope]) is not None:
        print(f"note: {plain(note)}", file=sys.stderr)
    for folder, why in newest.away.items():
        note = f"{folder} may have a newer run, but cannot be read: {why}"
        print(f"note: {plain(note)}", file=sys.stderr)
    return newest.run_dir
