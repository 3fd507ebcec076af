"""Notes in an attempt's folder: where its function is, or why its job was not requeued.

A colleague's run may have a note that no keeper or supervisor wrote.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.base.written_values import printable
from slurm_jobs.formats.records.rank_note import RankNote, rank_note_from_json
from slurm_jobs.formats.records.record_json import record_to_json

NOT_REQUEUED = "not-requeued.json"
"""Name of the note that says why an attempt that stopped and saved was not requeued."""


def write_note(path: Path, text: str) -> None:
    """Write the note, unless the file system refuses it: no attempt fails for a note."""
    with suppress(OSError):
        write_json_atomic(path, {"text": text})


def read_note(path: Path) -> str | None:
    """Return the note as one line that can be printed; None if there is no sound one."""
    with suppress(OSError, DamagedFileError):
        values = read_json(path)
        text = values.get("text") if isinstance(values, dict) else None
        if isinstance(text, str) and text:
            return printable(truncated(text))
    return None


def write_rank_note(path: Path, note: RankNote) -> None:
    """Write the note and its text, which is all that earlier versions read, as `write_note`."""
    with suppress(OSError):
        write_json_atomic(path, {"text": note.text, **record_to_json(note)})


def read_rank_note(path: Path) -> RankNote | None:
    """Return the note, which may have only its text; None if there is no sound one."""
    with suppress(OSError, DamagedFileError):
        return rank_note_from_json(read_json(path))
    return None
