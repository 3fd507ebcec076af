"""One command at a time submits or cancels for a run.

A `begin` entry of the ledger keeps a second command out while the first one
is at work; an `end` entry lets the next one in. A command that was killed
leaves its `begin` behind: it counts no longer once its process is gone.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import RunFailedError
from slurm_jobs.run.intents import Entry
from slurm_jobs.run.ledger import append_entry, read_ledger
from slurm_jobs.run.paths import RunPaths

OTHER_HOST_PATIENCE_S = 600.0
"""A command on another host that began longer ago than this and never ended is taken for dead."""


@contextmanager
def submitting(paths: RunPaths) -> Iterator[None]:
    """Keep other commands from submitting for this run at the same time.

    Raises:
        RunFailedError: another command is at it; the message names it.
    """
    token = secrets.token_hex(4)
    own = append_entry(paths.ledger_dir, "begin", token, {**_whoami()})
    try:
        other = _other_command(read_ledger(paths.ledger_dir, up_to=own.number), own)
        if other is not None:
            values = other.values
            message = (
                f"another command (pid {values['pid']} on {values['host']}) is submitting for this "
                "run at this moment; ask `slurm-jobs status` when it has ended"
            )
            raise RunFailedError(message)
        yield
    finally:
        append_entry(paths.ledger_dir, "end", token, {})


def _whoami() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "process_start": _start(os.getpid())}


def _start(pid: int) -> str | None:
    """When a process of this host started, in the kernel's ticks; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def _other_command(entries: list[Entry], own: Entry) -> Entry | None:
    """An earlier command that began, has not ended, and may still live."""
    ended = {entry.token for entry in entries if entry.kind == "end"}
    for entry in entries:
        if entry.kind != "begin" or entry.number >= own.number or entry.token in ended:
            continue
        values = entry.values
        if values["host"] == socket.gethostname():
            if _start(values["pid"]) == values["process_start"]:
                return entry
        elif time.time() - values["time_unix_s"] < OTHER_HOST_PATIENCE_S:
            return entry
    return None
