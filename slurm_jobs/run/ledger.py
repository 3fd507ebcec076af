"""The ledger: numbered entries, each created once, that say what was intended and what came of it.

One file an entry, because appends and locks are not to be trusted on NFS.
An `intent` stands before sbatch is called and the `submitted` entry with the
job's id right after it, so a command that is killed in between leaves a
token that can be looked up in Slurm by the job's name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.files import create_once, dump_json, make_private_dir, read_json
from slurm_jobs.run.intents import Entry, EntryKind

_NAME = re.compile(r"(\d{6})-([a-z]+)-([A-Za-z0-9]+)\.json")


def append_entry(folder: Path, kind: EntryKind, token: str, values: Mapping[str, Any]) -> Entry:
    """Add an entry under the next free number; safe against other writers."""
    make_private_dir(folder)
    data = {**values, "kind": kind, "token": token, "time_unix_s": time.time()}
    number = _last_number(folder) + 1
    while True:
        # The number must be unique whatever the kind, so it is claimed by a file of its own name.
        if create_once(folder / f"{number:06d}.claim", b"") and create_once(
            folder / f"{number:06d}-{kind}-{token}.json", dump_json(data).encode()
        ):
            return Entry(number=number, kind=kind, token=token, values=data)
        number += 1


def _last_number(folder: Path) -> int:
    return max((int(path.name[:6]) for path in folder.glob("[0-9]*")), default=0)


def read_ledger(folder: Path) -> list[Entry]:
    """All entries in order; an empty list before the first."""
    if not folder.is_dir():
        return []
    entries = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is not None:
            values = read_json(path)
            entries.append(
                Entry(number=int(match[1]), kind=values["kind"], token=match[3], values=values)
            )
    return entries
