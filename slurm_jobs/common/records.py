"""Records of attempts, their outcomes, and the scheduler's accounting.

An attempt record shows that a task started; a completion record shows how it ended. The file name
contains slice, attempt, the job's token and the outcome. So the state of ten thousand array tasks
is one directory listing, and the work of a superseded job is never taken for that of a later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, cast

from slurm_jobs.common.json_values import is_count, is_moment
from slurm_jobs.common.truncation import MAX_LINE_CHARS, truncated

DependencyKind = Literal["afterok", "afterany", "afternotok", "aftercorr"]
"""Kind of dependency, in Slurm's words."""

Outcome = Literal["completed", "failed", "stopped", "superseded"]
"""Outcome of an attempt. `stopped`: it was asked to stop, saved, and must run again. `superseded`:
it was fenced off and did no work."""

_ATTEMPT_NAME = re.compile(r"s(\d+)\.a(\d+)\.json")
_COMPLETION_NAME = re.compile(
    r"s(\d+)\.a(\d+)\.([\w-]+)\.(completed|failed|stopped|superseded)\.json", re.ASCII
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """Start of an array task or job."""

    stage: str
    slice_index: int
    attempt: int
    """Number of the attempt, counted from 1 over the whole life of the slice."""
    job_id: str
    """Job id as squeue shows it: `12`, or `12_3` for an array task."""
    token: str
    """Token of the intent that this job came from."""
    fingerprint: str
    started_unix_s: float
    node_names: tuple[str, ...]
    host: str
    pid: int
    """Pid of the supervisor."""
    num_ranks: int
    scheduler: str
    restart: int
    """Number of earlier requeues of the job by Slurm (SLURM_RESTART_COUNT)."""
    gpu: str = ""
    """GPU type, if the job requested one of several."""
    num_again: int = 0
    """Number of times that a resume had requested the stage again, complete or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRecord:
    """End of an attempt."""

    stage: str
    slice_index: int
    attempt: int
    job_id: str
    token: str
    """Token of the intent that the job came from."""
    outcome: Outcome
    fingerprint: str
    started_unix_s: float
    ended_unix_s: float
    exit_code: int
    """Exit code of the rank that failed first; 0 if completed."""
    signal: int | None = None
    """Signal that ended the rank that failed first."""
    failed_rank: int | None = None
    failed_node: str | None = None
    reason: str = ""
    """One line for `status`; empty if completed."""
    retryable: bool = True
    result: Mapping[str, Any] = field(default_factory=dict)
    """Result of the stage's function on rank 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskAccounting:
    """Scheduler's facts about one job or array task; None if unknown."""

    job_id: str
    """Job id: `12`, or `12_3`."""
    state: str
    """State in Slurm's own word (`COMPLETED`, `TIMEOUT`, `NODE_FAIL`)."""
    source: str
    """Source of the facts: `squeue`, `sacct` or `local`."""
    job_name: str = ""
    """Job name in Slurm; empty for the local scheduler, whose ids belong to one run."""
    submit_unix_s: float | None = None
    eligible_unix_s: float | None = None
    start_unix_s: float | None = None
    end_unix_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node_list: str = ""
    num_cpus: int | None = None
    num_gpus: int | None = None
    requested_mem_bytes: float | None = None
    max_rss_bytes: float | None = None
    cpu_time_s: float | None = None
    """Processor time used, over all processes of the task."""
    time_limit_s: float | None = None


def known_fields(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that are fields of a dataclass: other versions may have more.

    Fields that they lack have defaults.
    """
    names = {field.name for field in fields(cls)}
    return {key: value for key, value in values.items() if key in names}


def record_to_json(record: AttemptRecord | CompletionRecord | TaskAccounting) -> dict[str, Any]:
    """Return the record as JSON values."""
    return asdict(record)


def attempt_from_json(values: Mapping[str, Any]) -> AttemptRecord:
    """Return the record that `record_to_json` described.

    Raises:
        ValueError, TypeError, KeyError: it is damaged.
    """
    known = _known(AttemptRecord, values)
    record = AttemptRecord(**{**known, "node_names": tuple(known["node_names"])})
    counts = (record.slice_index, record.attempt, record.num_ranks, record.restart)
    _refuse(
        texts=(*_texts_of(record), record.host, record.scheduler, record.gpu, *record.node_names),
        counts=(*counts, record.num_again, record.pid),
        moments=(record.started_unix_s,),
    )
    return record


def completion_from_json(values: Mapping[str, Any]) -> CompletionRecord:
    """Return the record that `record_to_json` described; its result may be anything.

    Raises:
        ValueError, TypeError, KeyError: it is damaged.
    """
    record = CompletionRecord(**_truncated(_known(CompletionRecord, values), "reason"))
    numbers = (record.exit_code, record.signal or 0)
    if not isinstance(record.reason, str) or not all(isinstance(n, int) for n in numbers):
        message = "its reason is no text, or its exit code or signal no whole number"
        raise ValueError(message)
    _refuse(
        texts=(*_texts_of(record), record.outcome, record.failed_node or ""),
        counts=(record.slice_index, record.attempt, record.failed_rank or 0),
        moments=(record.started_unix_s, record.ended_unix_s),
    )
    return record


def _known(cls: Any, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        message = f"it is no mapping of names to values ({type(values).__name__})"
        raise TypeError(message)
    return known_fields(cls, values)


def _texts_of(record: AttemptRecord | CompletionRecord) -> tuple[str, ...]:
    return record.stage, record.job_id, record.token, record.fingerprint


def _refuse(*, texts: tuple[Any, ...], counts: tuple[Any, ...], moments: tuple[Any, ...]) -> None:
    """Raise on values that no writer writes: they would break code that computes or prints them.

    Raises:
        ValueError: a value has another type or range.
    """
    kinds: tuple[tuple[str, tuple[Any, ...], Callable[[Any], bool]], ...] = (
        ("a text that can be printed", texts, _is_name),
        ("a count", counts, is_count),
        ("a moment", moments, is_moment),
    )
    for kind, values, is_right in kinds:
        wrong = next((value for value in values if not is_right(value)), None)
        if not all(map(is_right, values)):
            message = f"damaged: {wrong!r:.40} in place of {kind}"
            raise ValueError(message)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LINE_CHARS and value.isprintable()


def _truncated(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the values with these texts truncated: a record may be old, or a stranger's."""
    texts = {n: truncated(values[n]) for n in names if isinstance(values.get(n), str)}
    return {**values, **texts}


def accounting_from_json(values: Mapping[str, Any]) -> TaskAccounting:
    """Return the record that `record_to_json` described."""
    known = known_fields(TaskAccounting, values)
    return TaskAccounting(**_truncated(known, "job_name", "reason", "node_list"))


def attempt_label(slice_index: int, attempt: int) -> str:
    """Return the part of a file name that names an attempt: `s00003.a0002`."""
    return f"s{slice_index:05d}.a{attempt:04d}"


def parse_attempt_name(name: str) -> tuple[int, int] | None:
    """Parse slice and attempt of an attempt record's file name; None for any other file."""
    match = _ATTEMPT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


class CompletionName(NamedTuple):
    """Parts of a completion record's file name."""

    slice_index: int
    attempt: int
    token: str
    outcome: Outcome


def completion_name(name: CompletionName) -> str:
    """Return a file name such as `s00003.a0002.0123abcd.completed.json`."""
    return f"{attempt_label(name.slice_index, name.attempt)}.{name.token}.{name.outcome}.json"


def parse_completion_name(name: str) -> CompletionName | None:
    """Parse a completion record's file name; None for any other file."""
    match = _COMPLETION_NAME.fullmatch(name)
    if match is None:
        return None
    outcome = cast("Outcome", match[4])
    return CompletionName(int(match[1]), int(match[2]), match[3], outcome)
