"""Note that a user writes on a run: one line in `note.txt`, which may also be edited by hand."""

from __future__ import annotations

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.base.json_values import is_text
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.run_folder.paths import RunPaths

MOST_CHARS = 500
_MOST_BYTES = 64 << 10
"""For a note that was edited by hand; a larger file is none."""


def read_note(paths: RunPaths) -> str:
    """Return the note as one line; empty if there is none.

    If the file is there and cannot be read, the line says why: a note must not hide its run.
    """
    try:
        text = read_text(paths.note, most_bytes=_MOST_BYTES, errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"({paths.note.name} cannot be read: {error.strerror or error})"
    return truncated(" ".join(text.split()), MOST_CHARS)


def write_note(paths: RunPaths, text: str) -> None:
    """Replace the note of a run.

    Raises:
        InputError: it is empty, too long, or has characters that cannot be printed.
        OSError: it cannot be written.
    """
    line = " ".join(text.split())
    problem = ""
    if not line:
        problem = "it is empty; --remove removes a note"
    elif len(line) > MOST_CHARS:
        problem = f"it has {len(line):,} characters, and a note has at most {MOST_CHARS}"
    elif not is_text(line):
        problem = "it has characters that cannot be printed"
    if problem:
        message = f"this note cannot be written: {problem}"
        raise InputError(message)
    write_text_atomic(paths.note, f"{line}\n")


def remove_note(paths: RunPaths) -> None:
    """Remove the note of a run, if it has one."""
    paths.note.unlink(missing_ok=True)
