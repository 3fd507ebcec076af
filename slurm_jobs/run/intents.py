"""Intents of a run and their outcomes, from the ledger's entries. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slurm_jobs.common.ranges import parse_ranges
from slurm_jobs.run.elements import element_of_slice, slices_of_element

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
    base_attempts: Mapping[int, int] = field(default_factory=dict)
    """Attempts of a slice up to this number belong to earlier intents; 0 if absent."""

    slices_per_task: int | None = None
    """Slices per element, for an array whose elements process several slices; see `elements`."""

    @property
    def cancelled(self) -> bool:
        """Return whether the whole job was cancelled."""
        return self.cancelled_slices.issuperset(self.slices)

    def element_id(self, slice_index: int) -> str | None:
        """Return the job id of one slice as squeue shows it: `12_3`."""
        if self.job_id is None or not self.is_array:
            return self.job_id
        return f"{self.job_id}_{element_of_slice(self.slices, self.slices_per_task, slice_index)}"

    def slices_beside(self, slice_index: int) -> tuple[int, ...]:
        """Return all slices of the element that works on this one, in processing order."""
        element = element_of_slice(self.slices, self.slices_per_task, slice_index)
        return slices_of_element(self.slices, self.slices_per_task, element)


def intents(entries: Iterable[Entry]) -> list[Intent]:
    """Return the intents in order, each with the outcome from later entries."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        values = entry.values
        if entry.kind == "intent":
            found[entry.token] = {
                "number": entry.number,
                "token": entry.token,
                "stage": values["stage"],
                "slices": parse_ranges(values["slices"]),
                "is_array": values["is_array"],
                "slices_per_task": values.get("slices_per_task"),
                "fingerprint": values["fingerprint"],
                "job_name": values["job_name"],
                "time_unix_s": values["time_unix_s"],
                "cancelled_slices": frozenset(),
                "base_attempts": {int(k): v for k, v in values["base_attempts"].items()},
            }
        elif entry.token in found:
            _add(found[entry.token], entry)
    return [Intent(**values) for values in found.values()]


def _add(intent: dict[str, Any], entry: Entry) -> None:
    if entry.kind == "submitted":
        intent["job_id"] = entry.values["job_id"]
        intent["submitted_unix_s"] = entry.values["time_unix_s"]
    elif entry.kind == "refused":
        intent["refused"] = entry.values["reason"]
    elif entry.kind == "cancelled":
        gone = entry.values.get("slices")
        slices = intent["slices"] if gone is None else parse_ranges(gone)
        intent["cancelled_slices"] = intent["cancelled_slices"].union(slices)


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
    listed = list(all_intents)
    own = next((intent for intent in listed if intent.token == token), None)
    if own is None:
        message = f"no intent {token}"
        raise LookupError(message)
    if slice_index in own.cancelled_slices or own.refused is not None:
        return True
    newest = latest_intents(listed, own.stage).get(slice_index)
    return newest is not None and newest.token != token
