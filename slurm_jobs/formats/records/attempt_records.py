"""Records of attempts, their outcomes, and the scheduler's accounting.

An attempt record shows that a task started; a completion record shows how it ended. The file name
contains slice, attempt, the job's token and the outcome. So the state of ten thousand array tasks
is one directory listing, and the work of a superseded job is never taken for that of a later one.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from slurm_jobs.base.failure_kinds import KINDS, FailureKind
from slurm_jobs.base.json_values import is_count, is_line, is_moment
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.records.failure_reason import with_last_line
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.formats.records.named_resumes import valid_ways
from slurm_jobs.formats.records.old_failures import kind_of_text, resumes_in_text
from slurm_jobs.formats.records.rank_note import RankNote, rank_note_from_json
from slurm_jobs.formats.records.record_json import known_fields, record_from_json

Outcome = Literal["completed", "failed", "stopped", "superseded"]
"""Outcome of an attempt. `stopped`: it was asked to stop, saved, and must run again. `superseded`:
it was fenced off, so that what it did does not count."""

StopRequest = Literal["time limit", "preemption", "stop signal", "sigterm"]
"""What asked an attempt to stop. `time limit`: the stop signal, close to the limit, or the stage's
own measure of its stopping time. `preemption`: the stop signal, and Slurm is preempting the job.
`stop signal`: the stop signal long before the limit. `sigterm`: a cancel, a requeue, a preemption,
or the limit itself; the accounting says which."""
AFTER_SIGTERM = "After SIGTERM from outside (time limit, cancel or preemption): "
"""Start of a failure's reason that may not be the stage's fault."""


_ATTEMPT_NAME = re.compile(r"s(\d+)\.a(\d+)\.json")
_COMPLETION_NAME = re.compile(
    r"s(\d+)\.a(\d+)\.([\w-]+)\.(completed|failed|stopped|superseded)\.json", re.ASCII
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """Start of an attempt at a slice."""

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
    """Number of earlier resumes that requested this slice again, even if it was complete."""
    start_ticks: int = 0
    """Start time of the supervisor, in kernel ticks since the host's start; 0 if unknown."""


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
    """One line for `status`; the text of `rank_note`, or empty, if completed."""
    rank_note: RankNote | None = None
    """Rank whose process outlived its function in a completed attempt; None if there is none, or an
    older version wrote the record."""
    last_line: str | None = None
    """Last line of the log of the rank that failed first, if it ended with an exit code and without
    an exception; secrets are hidden."""
    retryable: bool = True
    kind: FailureKind | None = None
    """Kind of the failure; None if it did not fail, or an older version wrote the record."""
    resumes: tuple[tuple[str, ...], ...] = ()
    """Arguments of `slurm-jobs resume RUN` that avoid the failure; see `StageError`."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Result of the stage's function on rank 0."""
    result_note: str | None = None
    """One line that names the numbers of the result that are not finite; None if all are."""
    stop_request: StopRequest | None = None
    """What asked it first to stop; None if nothing did, or an older version wrote the record."""
    after_sigterm: bool = False
    """True if it failed after SIGTERM from outside, which is then the likely cause."""
    used_code: str | None = None
    """Id of the list of the user's files that the attempt opened; None if it was not recorded."""

    @property
    def full_reason(self) -> str:
        """Return the reason with the last line of the log."""
        return with_last_line(self.reason, self.last_line)


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
    """Name that the job was submitted with."""
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

    @property
    def key(self) -> JobKey:
        """Return the identity of the job or array task."""
        return JobKey(self.job_name, self.job_id)

    @property
    def end_text(self) -> str:
        """Return the signal that ended it, as `FAILED by SIGKILL`, or the state alone."""
        if self.signal not in set(signal.Signals):
            return self.state
        return f"{self.state} by {signal.Signals(self.signal).name}"


MOST_NODES = 20_000
"""Twice the nodes of the largest cluster; a file is opened for each of them."""


def attempt_from_json(values: Mapping[str, Any]) -> AttemptRecord:
    """Return the record that `record_to_json` described.

    Raises:
        ValueError, TypeError, KeyError: it is damaged.
    """
    node_names = values.get("node_names") if isinstance(values, Mapping) else None
    if isinstance(node_names, list) and len(node_names) > MOST_NODES:
        message = f"damaged: it names over {MOST_NODES} nodes"
        raise ValueError(message)
    record = record_from_json(AttemptRecord, values)
    counts = (record.slice_index, record.attempt, record.num_ranks, record.restart)
    _refuse(
        texts=(*_texts_of(record), record.host, record.scheduler, record.gpu, *record.node_names),
        counts=(*counts, record.num_again, record.pid, record.start_ticks),
        moments=(record.started_unix_s,),
    )
    return record


def completion_from_json(values: Mapping[str, Any]) -> CompletionRecord:
    """Return the record that `record_to_json` described; its result may be anything.

    Raises:
        ValueError, TypeError, KeyError: it is damaged.
    """
    record = record_from_json(CompletionRecord, {**values, "resumes": (), "rank_note": None})
    numbers = (record.exit_code, record.signal or 0)
    if not isinstance(record.reason, str) or not all(isinstance(n, int) for n in numbers):
        message = "its reason is not text, or its exit code or signal is not a whole number"
        raise ValueError(message)
    is_known = record.stop_request in typing.get_args(StopRequest)  # a later version may add some
    record = dataclasses.replace(
        record,
        reason=truncated(record.reason),
        last_line=_line(record.last_line, "the last line of its log"),
        result_note=_line(record.result_note, "the note on its result"),
        stop_request=record.stop_request if is_known else None,
        kind=record.kind if record.kind in KINDS else None,
        resumes=valid_ways(values.get("resumes")),
        rank_note=rank_note_from_json(values.get("rank_note")),
    )
    if record.outcome == "failed" and "kind" not in values:
        text = record.reason.removeprefix(AFTER_SIGTERM)
        record = dataclasses.replace(
            record,
            kind=kind_of_text(text, retryable=record.retryable),
            resumes=valid_ways(resumes_in_text(text)),
        )
    if not re.fullmatch(r"[0-9a-f]{16}", record.used_code or "0" * 16):
        message = "the id of its list of used files is none that a worker writes"
        raise ValueError(message)
    _refuse(
        texts=(
            *_texts_of(record),
            record.outcome,
            record.failed_node or "",
        ),
        counts=(record.slice_index, record.attempt, record.failed_rank or 0),
        moments=(record.started_unix_s, record.ended_unix_s),
    )
    return record


def _line(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        message = f"{what} is not text"
        raise TypeError(message)
    return truncated(value)


def _texts_of(record: AttemptRecord | CompletionRecord) -> tuple[str, ...]:
    return record.stage, record.job_id, record.token, record.fingerprint


def _refuse(*, texts: tuple[Any, ...], counts: tuple[Any, ...], moments: tuple[Any, ...]) -> None:
    """Raise on values that no writer writes: they would break code that computes or prints them.

    Raises:
        ValueError: a value has another type or range.
    """
    kinds: tuple[tuple[str, tuple[Any, ...], Callable[[Any], bool]], ...] = (
        ("a text that can be printed", texts, is_line),
        ("a count", counts, is_count),
        ("a moment", moments, is_moment),
    )
    for kind, values, is_valid in kinds:
        for value in values:
            if not is_valid(value):
                message = f"damaged: {value!r:.40} instead of {kind}"
                raise ValueError(message)


def accounting_from_json(values: Mapping[str, Any]) -> TaskAccounting:
    """Return the record that `record_to_json` described; its texts may be another program's."""
    known = known_fields(TaskAccounting, values)
    names = ("job_name", "reason", "node_list")
    texts = {name: truncated(known[name]) for name in names if isinstance(known.get(name), str)}
    return TaskAccounting(**{**known, **texts})


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
