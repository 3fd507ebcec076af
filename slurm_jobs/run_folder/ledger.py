"""Ledger of submissions: numbered entries, each created once.

Each entry is a file, because appends and locks are unreliable on NFS. An `intent` is written
before sbatch is called, and the `submitted` entry with the job's id right after it. If a command is
killed in between, the intent's token is part of the job's name, so that Slurm can be searched for
it.

Only one command at a time submits or cancels for a run: its `begin` entry keeps the others out
until its `end`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.errors import DamagedFileError, FileError
from slurm_jobs.base.files import (
    create_once,
    dump_json,
    last_json_number,
    make_private_dir,
    names_in,
    read_json,
)
from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.orders import MOST_SLICES, element_of_slice, slices_of_element
from slurm_jobs.run_folder.paths import RunPaths

EntryKind = Literal["intent", "submitted", "refused", "cancelled", "begin", "end"]
"""Kind of an entry. begin/end: a command starts and stops submitting. refused: sbatch refused the
job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Entry of the ledger."""

    number: int
    kind: EntryKind
    token: str
    """Token of the intent; for begin and end that of the command."""
    values: Mapping[str, Any]
    """Contents: always `time_unix_s`; the rest depends on the kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """Job that was to be submitted, and the outcome."""

    number: int
    token: str
    stage: str
    slices: tuple[int, ...]
    is_array: bool
    fingerprint: str
    job_name: str
    time_unix_s: float
    job_id: str | None = None
    """Job id that sbatch printed; None while it is unknown."""
    refused: str | None = None
    """Reason why sbatch refused the job."""
    cancelled_slices: frozenset[int] = frozenset()
    """Slices that a command took away from the job; if it still starts, it skips them."""
    submitted_unix_s: float | None = None
    code: str = ""
    """Name of the snapshot that the job runs; empty if an older version submitted it."""
    base_attempts: Mapping[int, int] = field(default_factory=dict)
    """Attempts of a slice up to this number belong to earlier intents; 0 if absent."""

    slices_per_task: int | None = None
    """Slices per element, for an array whose elements process several slices; see `elements`."""
    max_running: int | None = None
    """Elements that may run at once; None for no limit, or if an older version submitted the job.
    """
    dependencies: Mapping[str, tuple[JobKey, ...]] | None = None
    """Jobs and array elements that it waits for, by kind; None if an older version submitted it."""

    @property
    def cancelled(self) -> bool:
        """Return whether the whole job was cancelled."""
        return self.cancelled_slices.issuperset(self.slices)

    @property
    def job(self) -> JobKey | None:
        """Return the identity of the job; None while its id is unknown."""
        return None if self.job_id is None else JobKey(self.job_name, self.job_id)

    def element(self, slice_index: int) -> JobKey | None:
        """Return the identity of the job or array element that works on a slice."""
        if self.job_id is None or not self.is_array:
            return self.job
        element = element_of_slice(self.slices, self.slices_per_task, slice_index)
        return JobKey(self.job_name, f"{self.job_id}_{element}")

    def slices_of_same_element(self, slice_index: int) -> tuple[int, ...]:
        """Return all slices of the element that works on this one, in processing order."""
        element = element_of_slice(self.slices, self.slices_per_task, slice_index)
        return slices_of_element(self.slices, self.slices_per_task, element)


def intents(entries: Iterable[Entry]) -> list[Intent]:
    """Return the intents in order, each with the outcome from later entries."""
    by_token: dict[str, dict[str, Any]] = {}
    for entry in entries:
        try:
            _add_entry(by_token, entry)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            message = f"entry {entry.number} of the ledger is damaged ({error}): restore it"
            raise DamagedFileError(message) from error
    return [Intent(**values) for values in by_token.values()]


def _add_entry(by_token: dict[str, dict[str, Any]], entry: Entry) -> None:
    """Add an intent by its token, or the outcome of one."""
    values = entry.values
    if entry.kind == "intent":
        by_token[entry.token] = {
            "number": entry.number,
            "token": entry.token,
            "stage": values["stage"],
            "slices": parse_ranges(values["slices"], below=MOST_SLICES),
            "is_array": values["is_array"],
            "slices_per_task": values.get("slices_per_task"),
            "max_running": values.get("max_running"),
            "dependencies": _read_dependencies(values.get("dependencies")),
            "fingerprint": values["fingerprint"],
            "code": values.get("code", ""),
            "job_name": values["job_name"],
            "time_unix_s": values["time_unix_s"],
            "cancelled_slices": frozenset(),
            "base_attempts": {int(k): v for k, v in values["base_attempts"].items()},
        }
    elif entry.kind == "submitted" and entry.token in by_token:
        intent = by_token[entry.token]
        intent.update(job_id=values["job_id"], submitted_unix_s=values["time_unix_s"])
    elif entry.kind == "refused" and entry.token in by_token:
        by_token[entry.token]["refused"] = values["reason"]
    elif entry.kind == "cancelled" and entry.token in by_token:
        intent, ranges = by_token[entry.token], values.get("slices")
        slices = intent["slices"]
        if ranges is not None:
            slices = parse_ranges(ranges, below=MOST_SLICES)
        intent["cancelled_slices"] = intent["cancelled_slices"].union(slices)


def _read_dependencies(
    values: Mapping[str, Iterable[Sequence[str]]] | None,
) -> dict[str, tuple[JobKey, ...]] | None:
    if values is None:
        return None
    return {kind: tuple(JobKey(*pair) for pair in pairs) for kind, pairs in values.items()}


def latest_intents(all_intents: Iterable[Intent], stage: str) -> dict[int, Intent]:
    """Return the newest intent for each slice of a stage."""
    newest: dict[int, Intent] = {}
    for intent in all_intents:
        if intent.stage == stage:
            newest.update(dict.fromkeys(intent.slices, intent))
    return newest


def is_superseded(all_intents: Iterable[Intent], token: str, slice_index: int) -> bool:
    """Check whether a newer intent covers the slice of the intent `token`, or it was cancelled.

    A job that finds itself superseded at its start exits without working.

    Raises:
        LookupError: the intent is not among `all_intents`, which are therefore incomplete.
    """
    intents_by_token = {intent.token: intent for intent in all_intents}
    if token not in intents_by_token:
        message = f"no intent {token}"
        raise LookupError(message)
    intent = intents_by_token[token]
    if slice_index in intent.cancelled_slices or intent.refused is not None:
        return True
    newest = latest_intents(intents_by_token.values(), intent.stage).get(slice_index)
    return newest is not None and newest.token != token


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
            message = f"{path} is damaged: it is not an entry of a ledger; restore it from a backup"
            raise DamagedFileError(message) from error
        entries.append(entry)
    return entries
