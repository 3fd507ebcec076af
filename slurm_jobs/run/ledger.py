"""Ledger of submissions: numbered entries, each created once.

Each entry is a file, because appends and locks are unreliable on NFS. An `intent` is written before
sbatch is called, and the `submitted` entry with the job's id right after it. If a command is killed
in between, the intent's token is part of the job's name, so that Slurm can be searched for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import DamagedFileError, FileError
from slurm_jobs.common.files import (
    create_once,
    dump_json,
    last_json_number,
    make_private_dir,
    names_in,
    read_json,
)
from slurm_jobs.run.intents import Entry, EntryKind
from slurm_jobs.run.paths import RunPaths


def entry_path(folder: Path, number: int) -> Path:
    """Return the path of the entry with that number."""
    return folder / f"{number:06d}.json"


def append_entry(folder: Path, kind: EntryKind, token: str, values: Mapping[str, Any]) -> Entry:
    """Append an entry under the next free number; concurrent writers get different numbers."""
    make_private_dir(folder)
    data = {**values, "kind": kind, "token": token, "time_unix_s": time.time()}
    number = last_number(folder) + 1
    while not create_once(entry_path(folder, number), dump_json(data).encode()):
        number += 1
    return Entry(number=number, kind=kind, token=token, values=data)


def last_number(folder: Path) -> int:
    """Return the number of the newest entry, from one listing; 0 if there is none."""
    return last_json_number(folder)


def refuse_lost_ledger(paths: RunPaths) -> None:
    """Raise if the ledger is empty although jobs were prepared.

    A command writes its `begin` before it prepares a job. A run without its entries would look
    unsubmitted, and its jobs would be submitted a second time.

    Raises:
        FileError: the entries are missing.
    """
    if last_number(paths.ledger_dir) == 0 and names_in(paths.jobs_dir):
        message = (
            f"{paths.ledger_dir} has no entries, but {paths.jobs_dir} has jobs that were prepared "
            "for submission. Which of them were submitted is unknown: restore the folder from a "
            "backup or snapshot, or submit the spec as a new run after its jobs have ended"
        )
        raise FileError(message)


def read_ledger(folder: Path, *, up_to: int = 0) -> list[Entry]:
    """Return all entries in order; an empty list if there are none.

    Numbers have no gaps, so each entry is opened by its name: a cached listing of a network file
    system cannot hide one below `up_to`.

    Raises:
        DamagedFileError: an entry has other content.
        OSError: an entry cannot be read, or one before the last is missing.
    """
    entries = []
    for number in range(1, max(up_to, last_number(folder)) + 1):
        path = entry_path(folder, number)
        values = read_json(path)
        try:
            entry = Entry(number=number, kind=values["kind"], token=values["token"], values=values)
        except (KeyError, TypeError) as error:
            message = f"{path} is damaged: it is no entry of a ledger; restore it from a backup"
            raise DamagedFileError(message) from error
        entries.append(entry)
    return entries
