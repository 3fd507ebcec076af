"""One command at a time submits or cancels for a run.

A `begin` entry of the ledger keeps a second command out while the first one
is at work; an `end` entry lets the next one in. A command that was killed
leaves its `begin` behind: it counts no longer once its process is gone.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import RunFailedError
from slurm_jobs.common.files import private_umask
from slurm_jobs.run.intents import Entry
from slurm_jobs.run.ledger import append_entry, last_number, read_ledger
from slurm_jobs.run.paths import RunPaths

OTHER_HOST_PATIENCE_S = 600.0
"""A command on another host that has written nothing for longer than this is taken for dead."""


_CLOCKS_DIFFER_S = 30.0
"""So much earlier than its patience ends another host's command may take this one for dead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A command's right to submit for a run. It is lost if another takes the command for dead."""

    run_dir: Path
    ledger_dir: Path
    begin: Entry


@contextmanager
def submitting(paths: RunPaths) -> Iterator[Turn]:
    """Keep other commands from submitting for this run at the same time.

    Yields:
        The turn; `refuse_if_lost` asks whether it still holds.

    Raises:
        RunFailedError: another command is at it; the message names it.
    """
    token = secrets.token_hex(4)
    own = append_entry(paths.ledger_dir, "begin", token, {**_whoami()})
    try:
        earlier = read_ledger(paths.ledger_dir, up_to=own.number)[: own.number - 1]
        other = open_command(earlier)
        if other is not None:
            raise RunFailedError(_in_the_way(paths.run_dir, other, earlier))
        with private_umask():  # a notebook's own mask may let others read what jobs write
            yield Turn(run_dir=paths.run_dir, ledger_dir=paths.ledger_dir, begin=own)
    finally:
        append_entry(paths.ledger_dir, "end", token, {})


def refuse_if_lost(turn: Turn, newest: Entry) -> None:
    """Raise where a command on another host has begun that took this one for dead.

    That is what a process looks like which was suspended, or whose file system hung, for longer
    than the others' patience.

    Args:
        turn: of this command.
        newest: the last entry that it wrote. Where nobody has written since, the listing of
            the ledger is all that is read.

    Raises:
        RunFailedError: the turn is lost; what this command would submit, the other one does.
    """
    if last_number(turn.ledger_dir) == newest.number:
        return
    entries = read_ledger(turn.ledger_dir, up_to=newest.number)
    for entry in entries:
        is_later = entry.kind == "begin" and entry.number > turn.begin.number
        if not is_later or entry.values["host"] == turn.begin.values["host"]:
            continue  # on this host it was seen to live
        sign_unix_s = _last_sign_unix_s(turn.begin, entries[: entry.number - 1])
        patience_s = OTHER_HOST_PATIENCE_S - _CLOCKS_DIFFER_S
        if float(entry.values["time_unix_s"]) - sign_unix_s >= patience_s:
            other = f"pid {entry.values['pid']} on {entry.values['host']}"
            message = (
                f"this command said nothing for over {patience_s / 60:.0f} min, and another one "
                f"({other}) took it for dead and works on the run: what is missing is that one's "
                "now, and jobs submitted before stay queued\n"
                f"next: slurm-jobs status {shlex.quote(str(turn.run_dir))}"
            )
            raise RunFailedError(message)


def _whoami() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "process_start": _start(os.getpid())}


def _start(pid: int) -> str | None:
    """When a process of this host started, in the kernel's ticks; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def open_command(entries: Sequence[Entry]) -> Entry | None:
    """A command that began, has not ended, and may still live.

    Of one on another host only its entries tell that it lives: each job that it
    submits writes two.
    """
    ended = {entry.token for entry in entries if entry.kind == "end"}
    for entry in entries:
        if entry.kind != "begin" or entry.token in ended:
            continue
        values = entry.values
        if values["host"] == socket.gethostname():
            if _start(values["pid"]) == values["process_start"]:
                return entry
        elif time.time() - _last_sign_unix_s(entry, entries) < OTHER_HOST_PATIENCE_S:
            return entry
    return None


def _last_sign_unix_s(begin: Entry, entries: Sequence[Entry]) -> float:
    """When a command that began last wrote down what it did."""
    acts = [e for e in entries if e.number > begin.number and e.kind not in {"begin", "end"}]
    return max(float(entry.values["time_unix_s"]) for entry in (begin, *acts))


def _in_the_way(run_dir: Path, other: Entry, entries: Sequence[Entry]) -> str:
    values = other.values
    message = (
        f"another command (pid {values['pid']} on {values['host']}) is submitting for this "
        "run at this moment"
    )
    if values["host"] == socket.gethostname():
        return f"{message}\nonce it has ended: slurm-jobs status {shlex.quote(str(run_dir))}"
    free_unix_s = _last_sign_unix_s(other, entries) + OTHER_HOST_PATIENCE_S
    clock = time.strftime("%H:%M:%S", time.localtime(free_unix_s))
    return (
        f"{message}. From here nobody can see whether it lives: without another sign of it in the "
        f"ledger it counts as dead at {clock}; type the same again then"
    )
