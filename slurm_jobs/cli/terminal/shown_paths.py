"""Paths and commands as the user would type them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from slurm_jobs.base.errors import Problem


def command_text(*words: str) -> str:
    """Return a command to type here, with words quoted for the shell.

    It calls this program by name if PATH has it, otherwise as it was called.
    """
    called = Path(sys.argv[0])
    program = f"{shlex.quote(sys.executable)} -m slurm_jobs"
    if called.name == "slurm-jobs":
        on_path = shutil.which("slurm-jobs")
        is_ours = on_path is not None and Path(on_path).resolve() == called.resolve()
        program = "slurm-jobs" if is_ours else shlex.quote(shown_path(called.absolute()))
    return f"{program} {shlex.join(words)}"


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder if that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def short_note(note: str) -> str:
    """Shorten the path in a note that may begin with a place in a file."""
    return note.removeprefix(f"{Path.cwd()}/")


def with_short_path(problem: Problem) -> Problem:
    """Return a problem whose file is named as the user would type it."""
    is_file = problem.file.startswith("/")
    return problem.changed(file=shown_path(Path(problem.file))) if is_file else problem
