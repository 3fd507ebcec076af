"""Turns: only one command at a time submits or cancels for a run.

A `begin` entry of the ledger keeps a second command out while the first one works; an `end` entry
lets the next one in. A killed command leaves its `begin` behind. On the same host its process id
and start time show that it is dead. For another host, this host measures the silence with its own
clock, from the first `begin` that it wrote after the command's last entry. The next command writes
the missing `end`, so the ledger always shows which command has the turn.
"""

from __future__ import annotations

import math
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
from slurm_jobs.common.json_values import CLOCKS_APART_S
from slurm_jobs.run.intents import Entry
from slurm_jobs.run.ledger import append_entry, last_number, read_ledger, refuse_lost_ledger
from slurm_jobs.run.paths import RunPaths

OTHER_HOST_PATIENCE_S = 600.0
"""Silence after which this host considers a command on another host dead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Right of a command to submit for a run, until the ledger has an `end` for it."""

    run_dir: Path
    ledger_dir: Path
    begin: Entry


@contextmanager
def submitting(paths: RunPaths) -> Iterator[Turn]:
    """Keep other commands from submitting for this run at the same time.

    Yields:
        The turn; `refuse_if_lost` checks whether it is still valid.

    Raises:
        RunFailedError: another command is submitting; the message names it.
        FileError: the ledger has lost its entries.
    """
    refuse_lost_ledger(paths)
    token = secrets.token_hex(4)
    own = append_entry(paths.ledger_dir, "begin", token, {**_whoami()})
    try:
        earlier = read_ledger(paths.ledger_dir, up_to=own.number)[: own.number - 1]
        for other in _unended(earlier):
            left_s = _patience_left_s(other, earlier, own)
            if left_s > 0:
                raise RunFailedError(_in_the_way(paths.run_dir, other, own, left_s))
            append_entry(paths.ledger_dir, "end", other.token, {"ended_by": token})
        with private_umask():  # a notebook's umask may make job output readable by others
            yield Turn(run_dir=paths.run_dir, ledger_dir=paths.ledger_dir, begin=own)
    finally:
        append_entry(paths.ledger_dir, "end", token, {})


def refuse_if_lost(turn: Turn, newest: Entry) -> None:
    """Raise if a command on another host has ended this one's turn.

    That happens after a silence longer than the other's patience: this process was suspended, or
    its file system hung.

    Args:
        turn: of this command.
        newest: the last entry that it wrote. If no other entry follows, only the ledger's listing
            is read.

    Raises:
        RunFailedError: the turn is lost; the other command submits the remaining jobs.
    """
    if last_number(turn.ledger_dir) == newest.number:
        return
    entries = read_ledger(turn.ledger_dir, up_to=newest.number)
    ends = (e for e in entries if e.kind == "end" and e.token == turn.begin.token)
    end = next(ends, None)
    if end is None:
        return
    other = next(e for e in entries if e.kind == "begin" and e.token == end.values["ended_by"])
    message = (
        f"another command ({_name(other)}) took this one for dead, as it may after "
        f"{OTHER_HOST_PATIENCE_S / 60:.0f} min without a sign, and submits the remaining jobs; "
        "jobs submitted before stay queued\n"
        f"next: slurm-jobs status {shlex.quote(str(turn.run_dir))}"
    )
    raise RunFailedError(message)


def _whoami() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "process_start": _start(os.getpid())}


def _start(pid: int) -> str | None:
    """Return the start time of a process on this host, in kernel ticks; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def open_command(entries: Sequence[Entry]) -> Entry | None:
    """Return a command that has begun, has not ended, and may be alive, for display.

    No submission relies on this result. The age of a command on another host is the difference of
    the two hosts' clocks, and as wrong as they are.
    """
    for begin in _unended(entries):
        if _is_here(begin):
            if _is_alive_here(begin):
                return begin
        elif abs(time.time() - _time_s(_last_sign(begin, entries))) < OTHER_HOST_PATIENCE_S:
            return begin
    return None


def is_perhaps_submitting(entries: Sequence[Entry]) -> bool:
    """Return whether a command may be alive, on another host also after a long silence."""
    return any(not _is_here(begin) or _is_alive_here(begin) for begin in _unended(entries))


def _unended(entries: Sequence[Entry]) -> list[Entry]:
    ended = {entry.token for entry in entries if entry.kind == "end"}
    return [entry for entry in entries if entry.kind == "begin" and entry.token not in ended]


def _patience_left_s(begin: Entry, entries: Sequence[Entry], own: Entry) -> float:
    """Return after how many seconds a command counts as dead; 0 if it does so now.

    Args:
        begin: of the command.
        entries: before `own`.
        own: the `begin` that this command has just written.
    """
    if _is_here(begin):
        return math.inf if _is_alive_here(begin) else 0.0
    sign = _last_sign(begin, entries)
    now_s = _time_s(own)
    seen_here_s = (
        _time_s(e) for e in entries if e.number > sign.number and e.kind == "begin" and _is_here(e)
    )
    watched_s = max((now_s - first_s for first_s in seen_here_s), default=0.0)
    # A command of last week is not waited for: clocks of a cluster are less than a day apart.
    silent_s = max(watched_s, now_s - _time_s(sign) - CLOCKS_APART_S)
    return max(0.0, OTHER_HOST_PATIENCE_S - silent_s)


def _last_sign(begin: Entry, entries: Sequence[Entry]) -> Entry:
    """Return the last entry that a command wrote; each job that it submits is two."""
    acts = [e for e in entries if e.number > begin.number and e.kind not in {"begin", "end"}]
    return max((begin, *acts), key=lambda entry: entry.number)


def _is_here(begin: Entry) -> bool:
    return bool(begin.values["host"] == socket.gethostname())


def _is_alive_here(begin: Entry) -> bool:
    return bool(_start(begin.values["pid"]) == begin.values["process_start"])


def _time_s(entry: Entry) -> float:
    return float(entry.values["time_unix_s"])


def _name(begin: Entry) -> str:
    return f"pid {begin.values['pid']} on {begin.values['host']}"


def _in_the_way(run_dir: Path, other: Entry, own: Entry, left_s: float) -> str:
    message = f"another command ({_name(other)}) is submitting for this run at this moment"
    if _is_here(other):
        return f"{message}\nonce it has ended: slurm-jobs status {shlex.quote(str(run_dir))}"
    clock = time.strftime("%H:%M:%S", time.localtime(_time_s(own) + left_s))
    return (
        f"{message}. {own.values['host']} cannot see whether that process is alive: if it writes "
        f"nothing to the ledger until {clock}, type the same again then. If it is dead, the same "
        f"command on {other.values['host']} continues at once"
    )
