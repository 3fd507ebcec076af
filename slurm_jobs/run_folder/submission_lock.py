"""Lock of a submission.

A killed command leaves its `begin` behind. On the same host its process id and start time show
that it is dead. On another host that cannot be seen: such a command counts as dead after ten
minutes without a new entry. Clocks of hosts differ, so this host measures from a time stamp of
its own: its first `begin` after that command's last entry. The next command writes the missing
`end`, so the ledger always shows which command has the turn.
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

from slurm_jobs.base.errors import RunFailedError
from slurm_jobs.base.files import private_umask
from slurm_jobs.base.json_values import CLOCKS_APART_S
from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.run_folder.ledger import (
    Entry,
    append_entry,
    last_number,
    read_ledger,
    refuse_lost_ledger,
)
from slurm_jobs.run_folder.paths import RunPaths

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
    own = living_process(os.getpid())
    assert own is not None
    process = {"pid": own.pid, "host": socket.gethostname(), "process_start": str(own.start_ticks)}
    begin = append_entry(paths.ledger_dir, "begin", token, process)
    try:
        earlier = read_ledger(paths.ledger_dir, up_to=begin.number)[: begin.number - 1]
        for other in _unended(earlier):
            _refuse_if_alive(paths.run_dir, other, earlier, begin)
            append_entry(paths.ledger_dir, "end", other.token, {"ended_by": token})
        with private_umask():  # a notebook's umask may make job output readable by others
            yield Turn(run_dir=paths.run_dir, ledger_dir=paths.ledger_dir, begin=begin)
    finally:
        append_entry(paths.ledger_dir, "end", token, {})


def _refuse_if_alive(run_dir: Path, other: Entry, earlier: Sequence[Entry], begin: Entry) -> None:
    """Raise unless the command that wrote the entry `other` counts as dead.

    Args:
        run_dir: the run's folder.
        other: `begin` of that command.
        earlier: entries before `begin`.
        begin: entry that this command has just written.
    """
    message = f"another command ({_name(other)}) is submitting for this run at this moment"
    if _is_here(other):
        if _is_alive_here(other):
            message += f"\nonce it has ended: slurm-jobs status {shlex.quote(str(run_dir))}"
            raise RunFailedError(message)
        return
    now_s, last_entry = _time_s(begin), _last_entry(other, earlier)
    begun_here_s = (
        _time_s(entry)
        for entry in earlier
        if entry.number > last_entry.number and entry.kind == "begin" and _is_here(entry)
    )
    watched_s = max((now_s - each_s for each_s in begun_here_s), default=0.0)
    # A command of last week is not waited for: clocks of a cluster are less than a day apart.
    silent_s = max(watched_s, now_s - _time_s(last_entry) - CLOCKS_APART_S)
    if silent_s < OTHER_HOST_PATIENCE_S:
        end_s = now_s + OTHER_HOST_PATIENCE_S - silent_s
        clock = time.strftime("%H:%M:%S", time.localtime(end_s))
        message += (
            f". {begin.values['host']} cannot check a process of {other.values['host']}: run the "
            f"command again there, which continues at once if that process is dead, or here after "
            f"{clock}"
        )
        raise RunFailedError(message)


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


def open_command(entries: Sequence[Entry]) -> Entry | None:
    """Return a command that has begun, has not ended, and may be alive, for display.

    No submission relies on this result. The age of a command on another host is the difference of
    the two hosts' clocks, and as wrong as they are.
    """
    for begin in _unended(entries):
        if _is_here(begin):
            if _is_alive_here(begin):
                return begin
        elif abs(time.time() - _time_s(_last_entry(begin, entries))) < OTHER_HOST_PATIENCE_S:
            return begin
    return None


def is_perhaps_submitting(entries: Sequence[Entry]) -> bool:
    """Return whether a command may be alive, on another host also after a long silence."""
    return any(not _is_here(begin) or _is_alive_here(begin) for begin in _unended(entries))


def _unended(entries: Sequence[Entry]) -> list[Entry]:
    ended = {entry.token for entry in entries if entry.kind == "end"}
    return [entry for entry in entries if entry.kind == "begin" and entry.token not in ended]


def _last_entry(begin: Entry, entries: Sequence[Entry]) -> Entry:
    """Return the last entry that a command wrote; each job that it submits is two."""
    written = (e for e in entries if e.number > begin.number and e.kind not in {"begin", "end"})
    return max(written, key=lambda entry: entry.number, default=begin)


def _is_here(begin: Entry) -> bool:
    return bool(begin.values["host"] == socket.gethostname())


def _is_alive_here(begin: Entry) -> bool:
    process = living_process(begin.values["pid"])
    return process is not None and str(process.start_ticks) == begin.values["process_start"]


def _time_s(entry: Entry) -> float:
    return float(entry.values["time_unix_s"])


def _name(begin: Entry) -> str:
    return f"pid {begin.values['pid']} on {begin.values['host']}"
