"""Records of attempts, their outcomes, and the scheduler's accounting.

An attempt record shows that a task started; a completion record shows how it ended. The file name
contains slice, attempt, the job's token and the outcome. So the state of ten thousand array tasks
is one directory listing, and the work of a superseded job is never taken for that of a later one.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

from slurm_jobs.shared.errors import MAX_LINE_CHARS, truncated
from slurm_jobs.shared.failure_reason import with_last_line
from slurm_jobs.shared.files import is_count, is_moment, read_json
from slurm_jobs.shared.job_key import JobKey

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

RecordT = TypeVar("RecordT")

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
    """One line for `status`; empty if completed."""
    last_line: str | None = None
    """Last line of the log of the rank that failed first, if it ended with an exit code and without
    an exception; secrets are hidden."""
    retryable: bool = True
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


def known_fields(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that are fields of a dataclass: other versions may have more.

    Fields that they lack have defaults.
    """
    names = {field.name for field in fields(cls)}
    return {key: value for key, value in values.items() if key in names}


def record_to_json(value: Any) -> Any:
    """Return a record, or a part of one, as JSON values."""
    if dataclasses.is_dataclass(value):
        return {f.name: record_to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: record_to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [record_to_json(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def record_from_json(cls: type[RecordT], values: Any) -> RecordT:
    """Return the record of class `cls` that `record_to_json` described, in any version.

    Keys of later versions are ignored; keys that earlier versions lack have their defaults.

    Raises:
        ValueError, TypeError: it is damaged, or lacks a key without a default.
    """
    if not isinstance(values, Mapping):
        message = f"the record must be a mapping of names to values, not {type(values).__name__}"
        raise TypeError(message)
    hints = _hints(cast("Any", cls))
    known = known_fields(cls, values)
    return cls(**{key: _value_from_json(hints[key], value) for key, value in known.items()})


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _value_from_json(hint: Any, value: Any) -> Any:
    if hint is Path:
        return Path(value)
    if dataclasses.is_dataclass(hint):
        return record_from_json(cast("type[Any]", hint), value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, Sequence):
        return tuple(_value_from_json(arguments[0], item) for item in value)
    if origin is Mapping and arguments[0] is int:  # JSON has no other keys
        return {int(key): item for key, item in value.items()}
    if origin is Mapping and dataclasses.is_dataclass(arguments[1]):
        return {key: _value_from_json(arguments[1], item) for key, item in value.items()}
    if isinstance(value, Mapping) and arguments and dataclasses.is_dataclass(arguments[0]):
        return _value_from_json(arguments[0], value)  # it may be null
    return value


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
    record = record_from_json(CompletionRecord, values)
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
    )
    if not re.fullmatch(r"[0-9a-f]{16}", record.used_code or "0" * 16):
        message = "the id of its list of used files is none that a worker writes"
        raise ValueError(message)
    _refuse(
        texts=(*_texts_of(record), record.outcome, record.failed_node or ""),
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
        ("a text that can be printed", texts, _is_name),
        ("a count", counts, is_count),
        ("a moment", moments, is_moment),
    )
    for kind, values, is_valid in kinds:
        for value in values:
            if not is_valid(value):
                message = f"damaged: {value!r:.40} instead of {kind}"
                raise ValueError(message)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LINE_CHARS and value.isprintable()


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


# Context of a stage's function: everything that it gets apart from its config.
#
# The supervisor writes one `TaskContext` for each task into `context.json`; each rank reads it and
# adds its own identity.


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentStage:
    """Stage that this one comes after."""

    stage: str
    run: str
    """Built-in name (`preprocess`), entry point (`package.module:function`) or `shell`."""
    output_dir: Path
    num_slices: int
    """Number of slices; 1 for a stage without an array."""
    origin: str = ""
    """Name in the spec, if it is one combination of a matrix and the only such parent."""

    @property
    def run_dir(self) -> Path:
        """Return the folder of its run, which holds its output as `data/STAGE`."""
        return self.output_dir.parent.parent


def resume_command(run_dir: Path | str, *options: str) -> str:
    """Return the resume command of a run; messages show it in backticks."""
    return shlex.join(["slurm-jobs", "resume", str(run_dir), *options])


def again_command(run_dir: Path | str, stage: str) -> str:
    """Return the command that runs all slices of a stage again, complete or not."""
    return resume_command(run_dir, "--again", stage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskContext:
    """Identity and folders of a running stage's function."""

    run_dir: Path
    run_id: str
    stage: str
    slice_index: int
    """Slice that this array task works on, from 0; 0 for a stage without an array."""
    num_slices: int
    attempt: int
    """Number of the attempt, counted from 1 over the whole life of the slice."""
    rank: int
    num_ranks: int
    local_rank: int
    num_local_ranks: int
    node_rank: int
    num_nodes: int
    node_name: str
    """Slurm's name of the node (`SLURMD_NODENAME`), or a name that the local scheduler generates.
    Work that is done once per node must use it as its key: in tests several nodes share one host.
    """
    main_addr: str
    """Address of the node of rank 0, for `torch.distributed`."""
    main_port: int
    output_dir: Path
    """This stage's own folder, shared by its array tasks and attempts."""
    timing_dir: Path
    """This attempt's folder for step records and spans."""
    task_dir: Path
    """This attempt's folder for small files (progress, exit records)."""
    node_local_dir: Path
    """Fast storage of this node alone, already keyed by node name; may be empty at the start."""
    parents: tuple[ParentStage, ...]
    config: Mapping[str, Any]
    """Resolved config of the stage."""
    spec_dir: Path
    limit: int | None
    """`--limit`: only this many samples of the manifest, from its start."""
    deadline_unix_s: float | None
    """Time at which the scheduler ends this attempt, seconds since 1970; None without a time limit.
    """
    fingerprint: str = ""
    """Hash of the stage's work: its config, code and parents. A resume may give it other work."""
    num_again: int = 0
    """Number of resumes so far that requested this slice again, even if it was complete."""

    def parent_running(self, run: str) -> ParentStage:
        """Return the parent whose `run:` is `run`.

        Raises:
            LookupError: no such parent, or several; the spec's `after:` decides that.
        """
        matching = [parent for parent in self.parents if parent.run == run]
        if len(matching) == 1:
            return matching[0]
        if matching:
            names = ", ".join(parent.stage for parent in matching)
            message = f"stage {self.stage} comes after several stages with `run: {run}`: {names}"
            raise LookupError(message)
        known = ", ".join(f"{p.stage} ({p.run})" for p in self.parents) or "none"
        message = f"stage {self.stage} needs a stage with `run: {run}` before it; it has: {known}"
        raise LookupError(message)


def read_context(path: Path) -> TaskContext:
    """Read the context in a `context.json`."""
    return record_from_json(TaskContext, read_json(path))


# Resources that one job, or one array task, requests from the scheduler.


def lead_within(timeout_min: float, asked_s: int) -> int:
    """Return how many seconds before a time limit ranks get the stop signal: at most half of it."""
    return min(asked_s, int(timeout_min * 60 / 2))


_GPU_REQUEST = re.compile(
    r"(?:gres[/:])?gpu(?:[:=](?!\d+[kmg]?$)[^:=,]+)?(?:[:=](\d+)([kmg]?))?", re.IGNORECASE
)
_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
"""Suffixes of a count, from Slurm's src/common/gres.c."""
_SOCKETS = re.compile(r"\(S:[^()]*\)")
"""Socket list in Slurm's own output, which people copy."""


def gpus_of_options(slurm: Mapping[str, object], tasks_per_node: int) -> int:
    """Return the GPUs on each node that options of sbatch request under their own names.

    `gres: gpu:a100:4`, `tres-per-task: gres/gpu:1`, and `gpus-per-socket` with `sockets-per-node`.
    """
    options = {key.replace("_", "-"): value for key, value in slurm.items()}
    num_gpus = _num_gpus(options.get("gres"))
    num_gpus += tasks_per_node * _num_gpus(options.get("tres-per-task"))
    a_socket = options.get("gpus-per-socket")
    if a_socket:
        sockets = str(options.get("sockets-per-node", 1)).partition("-")[0]
        num_gpus += _num_gpus(f"gpu:{a_socket}") * (int(sockets) if sockets.isdecimal() else 1)
    return num_gpus


def _num_gpus(text: object) -> int:
    """Return the GPUs of `gpu`, `gpu:4`, `gpu:a100:4`, `gres/gpu=2`, alone or in a list."""
    parts = _SOCKETS.sub("", str(text or "")).split(",")
    matches = [_GPU_REQUEST.fullmatch(part.strip()) for part in parts]
    return sum(
        int(match[1] or 1) * _SUFFIXES[(match[2] or "").lower()] for match in matches if match
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResources:
    """Resources of one job or array task."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    gpu: tuple[str, ...]
    mem_gb: float | None
    timeout_min: float
    signal_lead_s: int
    slurm: Mapping[str, str | bool | int | float]
    """Options of sbatch from the profile and the stage; the stage's win."""
    gpu_kept: str = ""
    """GPU type on which the work was begun, of several: only it is requested; empty for any."""

    @property
    def gpu_choice(self) -> tuple[str, ...]:
        """Return GPU types that the job may get; empty for all types."""
        return (self.gpu_kept,) if self.gpu_kept else self.gpu

    @property
    def num_gpus(self) -> int:
        """Return the GPUs on each node, requested by any key."""
        return self.gpus_per_node or gpus_of_options(self.slurm, self.tasks_per_node)

    @property
    def total_gpus(self) -> int:
        """Return the GPUs on all nodes."""
        return self.nodes * self.num_gpus

    @property
    def lead_s(self) -> int:
        """Return the seconds before the time limit at which ranks get the stop signal."""
        return lead_within(self.timeout_min, self.signal_lead_s)

    @property
    def num_ranks(self) -> int:
        """Return the number of ranks over all nodes."""
        return self.nodes * self.tasks_per_node


def near_gpus(resources: JobResources) -> list[str]:
    """Return the options of srun that give the first ranks the cores of the first socket.

    Rank n of a node uses its GPU n, and on most nodes the first GPUs belong to the first socket.
    Slurm's default distributes ranks to sockets in turn. An option of the spec or the profile has
    priority.
    """
    options = {key.replace("_", "-") for key in resources.slurm}
    if not resources.num_gpus or options & {"distribution", "m"}:
        return []
    return ["--distribution=block:block"]
