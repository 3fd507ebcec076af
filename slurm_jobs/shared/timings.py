"""Timing records: one fixed-size record for each step and rank, and spans for the rest.

Step records are appended to `rank-00000.steps`: a JSON header line, then packed little-endian
records. A file that a kill truncates loses at most its last record, and six million records are
read as one array. Spans are JSON lines in `rank-00000.spans.jsonl`.

Host time comes from clocks that add up: the phases of a step sum to `step_s`, and `other_s` is the
unexplained rest. Device time is recorded separately, cut at the same places, and is never added to
it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from slurm_jobs.shared.errors import DamagedFileError, truncated
from slurm_jobs.shared.files import (
    END_OF_TIME_S,
    is_amount,
    is_count,
    is_moment,
    is_number,
    is_text,
    read_json,
)
from slurm_jobs.shared.records import record_from_json
from slurm_jobs.shared.regular_files import MOST_MEASURED_BYTES, open_regular, read_bytes, rest_of

if TYPE_CHECKING:
    import numpy as np


# Files of PyTorch's profiler in an attempt's timing folder, and a reader of its operators.


OPERATORS_FORMAT_NAME = "slurm-jobs-operators-1"


def trace_path(timing_dir: Path, rank: int) -> Path:
    """Return a Chrome trace, for chrome://tracing or ui.perfetto.dev."""
    return timing_dir / f"rank-{rank:05d}.trace.json.gz"


def operators_path(timing_dir: Path, rank: int) -> Path:
    """Return the table of operators, for programs."""
    return timing_dir / f"rank-{rank:05d}.operators.json"


def operators_text_path(timing_dir: Path, rank: int) -> Path:
    """Return the table of operators, for people."""
    return timing_dir / f"rank-{rank:05d}.operators.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """All calls of one operator, or of one kernel, in the recorded steps."""

    name: str
    kind: Literal["operator", "kernel"]
    """Kind of entry. A kernel runs on the device; the time of kernels that an operator started
    counts for both."""
    num_calls: int
    self_cpu_s: float
    """Time without the operators that it called."""
    cpu_s: float
    self_device_s: float
    device_s: float
    cpu_share: float
    """Share of the time on the host, by `self_cpu_s`."""
    device_share: float
    """Share of the time of kernels, by `self_device_s`; 0 without a device."""
    self_cpu_bytes: int | None
    """Bytes allocated minus bytes freed; None without `profile.memory`."""
    self_device_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorTable:
    """Content of `rank-00000.operators.json`."""

    first_step: int
    num_steps: int
    wall_s: float
    """Duration of all recorded steps together, including the slowdown by the recording."""
    operators: Sequence[Operator]
    """Operators by time, longest first: by device time if there is a device."""
    communication_s: float | None = None
    """Part of `wall_s` during which at least one collective ran on this rank; None in files of
    older versions."""
    exposed_communication_s: float | None = None
    """Part of `communication_s` without computation."""


def read_operators(path: Path) -> OperatorTable:
    """Read a table of operators.

    Raises:
        DamagedFileError: the file has another format or version, or values of other types.
    """
    values: dict[str, Any] = read_json(path)
    if not isinstance(values, dict) or values.get("format") != OPERATORS_FORMAT_NAME:
        name = values.get("format") if isinstance(values, dict) else values
        message = f"{path}: format {name!r}, expected {OPERATORS_FORMAT_NAME!r}"
        raise DamagedFileError(message)
    try:
        table = record_from_json(OperatorTable, values)
    except TypeError as error:
        message = f"{path}: damaged: it lacks a part of what an operator, or the table, has"
        raise DamagedFileError(message) from error
    waits = (table.communication_s, table.exposed_communication_s)
    is_valid = (
        is_count(table.first_step)
        and is_count(table.num_steps)
        and table.num_steps > 0
        and is_amount(table.wall_s)
        and table.wall_s > 0
        and all(value is None or is_amount(value) for value in waits)
    )
    for row in table.operators:
        # Bytes may be negative, and PyTorch reports some own times below zero.
        numbers = (row.self_cpu_s, row.cpu_s, row.self_device_s, row.device_s)
        sizes = (row.self_cpu_bytes, row.self_device_bytes)
        is_valid = (
            is_valid
            and all(map(is_text, (row.name, row.kind)))
            and is_count(row.num_calls)
            and all(map(is_number, (*numbers, row.cpu_share, row.device_share)))
            and all(size is None or is_number(size) for size in sizes)
        )
    if not is_valid:
        message = f"{path}: damaged: a value is not of the type that an operator, or the table, has"
        raise DamagedFileError(message)
    return table


# First lines of files of records, validated before use: they may be damaged, or another user's.


HEADERS_FORMAT_NAME = "slurm-jobs-steps-1"
_MOST_HEADER_BYTES = 1 << 20

STRUCT_CODES = {"i8": "q", "i4": "i", "f8": "d", "f4": "f"}
"""NumPy types of fields, and the codes of the module `struct` for them."""


def _header_line(name: str, fields: Sequence[Any], metadata: Mapping[str, Any]) -> bytes:
    header = {"format": name, "fields": fields, "metadata": dict(metadata)}
    return (json.dumps(header) + "\n").encode()


def _read_header_line(stream: IO[bytes], path: Path, name: str, kind: str) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(stream.readline(_MOST_HEADER_BYTES))
    except (ValueError, RecursionError) as error:  # RecursionError: nested deeper than any header
        message = f"{path}: not a {kind} (its first line is no JSON header)"
        raise ValueError(message) from error
    if not isinstance(header, dict) or header.get("format") != name:
        other = header.get("format") if isinstance(header, dict) else header
        message = f"{path}: not a {kind}: format {other!r}, expected {name!r}"
        raise ValueError(message)
    return header


def _records(payload: bytes, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the whole records of a file as an array, without a truncated one at the end."""
    import numpy as np

    return np.frombuffer(payload[: len(payload) // dtype.itemsize * dtype.itemsize], dtype=dtype)


def read_header(stream: IO[bytes], path: Path) -> dict[str, Any]:
    """Read `fields` of the records and `metadata` of the writer, up to the first record.

    Raises:
        ValueError: it is no header, or one that no writer writes; `path` is named.
    """
    header = _read_header_line(stream, path, HEADERS_FORMAT_NAME, "step file")
    fields, metadata = header.get("fields"), header.get("metadata")
    pairs = fields if isinstance(fields, list) else []
    pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    names = {name for name, _ in pairs if isinstance(name, str) and name}
    codes = [code for _, code in pairs if isinstance(code, str) and code in STRUCT_CODES]
    if not isinstance(fields, list) or not len(names) == len(codes) == len(fields):
        message = f"{path}: damaged: its header does not name the fields of its records"
        raise ValueError(message)
    if not _are_training_facts(metadata):
        message = f"{path}: damaged: its header has invalid ranks or phases"
        raise ValueError(message)
    return header


def _are_training_facts(metadata: Any) -> bool:
    """Check whether ranks and phases, if present, are values that a writer writes."""
    if not isinstance(metadata, dict) or not is_count(metadata.get("num_ranks", 0)):
        return False
    node_name = metadata.get("node_name") or ""  # printed, also to other users
    is_plain = isinstance(node_name, str) and node_name.isprintable()
    if not is_count(metadata.get("num_steps") or 0) or not is_plain:
        return False
    phases = metadata.get("phases") or []
    return isinstance(phases, list) and all(
        isinstance(phase, dict)
        and is_count(phase.get("first_step", -1 if "training" in phase else 0))
        for phase in phases
    )


# Records of a node's load: one fixed-size reading every second or so.
#
# One rank of each node appends them to `node-00000.system`: a JSON header line that names the
# fields, then packed little-endian records. A file that a kill truncates loses at most its last
# reading. A value that could not be read is NaN.


FORMAT_NAME = "slurm-jobs-system-1"

MAX_GPUS = 16
"""Limit for the GPUs of one node; more are not read."""

HOST_FIELDS = (
    "cpu_busy_share",  # of the cores that the job may use, all processes; 1 is all of them
    "cpu_iowait_share",  # idle, with a disk request of their own outstanding
    "memory_available_bytes",  # of the node, the page cache counted as free
    "disk_read_bytes_per_s",  # of all disks of the node
    "disk_write_bytes_per_s",
    "local_disk_read_bytes_per_s",  # of the disk behind the node-local folder
    "local_disk_write_bytes_per_s",
    "network_receive_bytes_per_s",  # of all network cards, as the kernel's network stack counts
    "network_send_bytes_per_s",
    "infiniband_receive_bytes_per_s",  # of all ports, also traffic that bypasses the kernel (RDMA)
    "infiniband_send_bytes_per_s",
    "job_cpu_s_per_s",  # processor time of the job's own processes here: cores kept busy
    "job_resident_bytes",  # their memory; a page that two share counts twice
)
"""Float32 fields, one number for each reading."""

GPU_FIELDS = (
    "gpu_busy_share",  # of the time, any kernel ran: 1 does not mean that all of the GPU did
    "gpu_memory_busy_share",  # of the time, its memory was read or written
    "gpu_memory_used_bytes",  # by all processes
    "gpu_power_w",
)
"""Float32 fields, one number for each reading and GPU, in the order of `gpus` in the metadata."""


def system_path(timing_dir: Path, node_rank: int) -> Path:
    """Return the file with the readings of node `node_rank` of the job."""
    return timing_dir / f"node-{node_rank:05d}.system"


def _fields(num_gpus: int) -> list[tuple[str, str, int | None]]:
    """Return name, NumPy type and length of every field; None for a single number."""
    return [
        ("unix_s", "f8", None),  # wall clock at the end of the interval
        ("interval_s", "f4", None),  # since the reading before: rates and shares are means over it
        *((name, "f4", None) for name in HOST_FIELDS),
        *((name, "f4", num_gpus) for name in GPU_FIELDS),
        ("number", "i4", None),  # from 1; the last field, so that a record without its end shows
    ]


class ReadingPacker:
    """Encoder of readings with a fixed number of GPUs."""

    def __init__(self, num_gpus: int) -> None:
        self._num_gpus = num_gpus
        num_floats = 1 + len(HOST_FIELDS) + num_gpus * len(GPU_FIELDS)
        self._packer = struct.Struct(f"<d{num_floats}fi")

    def header(self, metadata: Mapping[str, Any]) -> bytes:
        """Return the first line of the file: format, fields, and facts about the node."""
        return _header_line(FORMAT_NAME, _fields(self._num_gpus), metadata)

    def pack(
        self,
        number: int,
        *,
        unix_s: float,
        interval_s: float,
        host: Mapping[str, float],
        gpus: Mapping[str, Sequence[float]],
    ) -> bytes:
        """Return one reading; values that `host` or `gpus` lack are NaN."""
        unknown = [math.nan] * self._num_gpus
        values = [value for name in GPU_FIELDS for value in gpus.get(name, unknown)]
        known = (host.get(name, math.nan) for name in HOST_FIELDS)
        return self._packer.pack(unix_s, interval_s, *known, *values, number)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemFile:
    """Content of a file of readings."""

    metadata: Mapping[str, Any]
    """`node_name`, `every_s`, `cores`, `gpus` (`uuid`, `name`, `memory_bytes`), `disks` and more.
    """
    readings: np.ndarray
    """Structured array, one entry for each reading: `unix_s`, `interval_s`, `HOST_FIELDS`,
    `GPU_FIELDS` (each [num_readings, num_gpus]), and `number`."""
    num_damaged: int = 0
    """Number of readings left out: the first damaged one, and all after it."""


def read_system(path: Path) -> SystemFile:
    """Read a file of readings up to the first damaged one; skip a truncated one at the end.

    Raises:
        ValueError: the file is not one of readings, or of another version.
    """
    import numpy as np

    with open_regular(path) as stream:
        header = _read_header_line(stream, path, FORMAT_NAME, "file of readings")
        if not _are_fields(header.get("fields")) or not _are_node_facts(header.get("metadata")):
            message = f"{path}: damaged: its header has an invalid field or node"
            raise ValueError(message)
        dtype = np.dtype(
            [
                (name, "<" + code) if length is None else (name, "<" + code, (length,))
                for name, code, length in header["fields"]
            ]
        )
        readings = _records(rest_of(stream, path, most_bytes=MOST_MEASURED_BYTES), dtype)
    is_valid = (readings["unix_s"] > 0) & (readings["unix_s"] < END_OF_TIME_S)
    is_valid &= readings["number"] == np.arange(1, len(readings) + 1)
    num_valid = _num_before_damage(is_valid)
    num_damaged = len(readings) - num_valid
    return SystemFile(
        metadata=header["metadata"], readings=readings[:num_valid], num_damaged=num_damaged
    )


def _num_before_damage(is_valid: np.ndarray) -> int:
    """Count the records before the first that cannot be what was written."""
    return len(is_valid) if is_valid.all() else int(is_valid.argmin())


def _are_fields(rows: Any) -> bool:
    """Check whether they are the fields of a writer, for any number of GPUs."""
    written = ([list(field) for field in _fields(num_gpus)] for num_gpus in range(MAX_GPUS + 1))
    return any(rows == fields for fields in written)


def _are_node_facts(metadata: Any) -> bool:
    """Check whether cores, cards and links, if present, are values that a writer writes."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get("cores") or [], list):
        return False
    gpus, links = metadata.get("gpus") or [], metadata.get("links") or []
    return (
        str(metadata.get("node_name") or "").isprintable()
        and _have_numbers(gpus, "memory_bytes")
        and _have_numbers(links, "bits_per_s")
        and all("is_up" in link for link in links)
    )


def _have_numbers(rows: Any, name: str) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict) and is_number(row.get(name) or 0) for row in rows
    )


STEP_PHASES = (
    "data_wait_s",  # from before the loader is asked until the batch has arrived
    "host_to_device_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "checkpoint_s",
    "evaluation_s",
    "rank_wait_s",  # for the slowest rank, where a wait can be timed apart: between the passes
    "compile_s",  # torch compiling layers, subtracted from the phase that it happened in
    "other_s",  # the unexplained rest
)
"""Step phases in the order in which a step goes through them; seconds of host time."""

NOT_TRAINING = ("checkpoint_s", "evaluation_s", "compile_s")
"""Step phases that MFU does not include; see `pipeline.timing.flops`."""

DEVICE_PHASES = (
    "data_wait_s",
    "host_to_device_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "rank_wait_s",
)
"""Step phases whose time on the device is recorded too, as `device_` and the name."""

DEVICE_FIELDS = (*(f"device_{name}" for name in DEVICE_PHASES), "device_step_s")
"""Seconds by the device's own clock; NaN if none was read."""

STEP_PARTS: Mapping[str, str] = {
    "rank_wait_data_s": "rank_wait_s",  # for the rank whose batch came last; the rest: the update
}
"""Parts of step phases, reported together with their phase; no phases themselves. NaN if not
recorded."""

LOADER_FIELDS = (
    "loader_s",  # from when a thread began a microbatch until it was ready
    "loader_cpu_s",  # of it, computing
    "loader_core_wait_s",  # of it, ready to compute, but other threads had the cores
    "loader_read_blocked_s",  # of it, blocked in the one thread that reads for all; NaN without one
)
"""Seconds that the loader's threads spent on a step's data, summed over its microbatches, at any
time; NaN if unknown. The rest of `loader_s` is blocked time: on storage, or on a lock. It is no
part of the step's own time, because the threads run in parallel."""

STEP_FIELDS: tuple[tuple[str, str], ...] = (
    ("step", "i8"),  # optimizer steps completed before this one: the first has 0
    ("start_unix_s", "f8"),  # wall clock when the loader was asked
    ("epoch", "i4"),
    ("num_microbatches", "i4"),
    ("num_samples", "i4"),  # on this rank, in this step
    ("num_tokens", "i4"),  # without padding, image tokens included
    ("num_padding_tokens", "i4"),
    ("num_supervised_tokens", "i4"),
    ("num_images", "i4"),
    ("num_image_tokens", "i4"),  # of num_tokens, those that stand for a part of an image
    *((name, "f4") for name in STEP_PHASES),
    ("step_s", "f4"),
    *((name, "f4") for name in STEP_PARTS),
    ("core_wait_s", "f4"),  # the loop's thread was ready to compute, but others had the cores
    *((name, "f4") for name in DEVICE_FIELDS),
    *((name, "f4") for name in LOADER_FIELDS),
    ("model_flops", "f4"),  # of this rank, forward and backward; NaN where not counted
    ("mfu", "f4"),  # share of the card's peak, 0 to 1; NaN where the peak is not known
    ("loss", "f4"),  # mean over the supervised tokens of all ranks
    ("grad_norm", "f4"),  # before clipping; NaN where it is not computed
    ("learning_rate", "f4"),
    ("memory_peak_bytes", "f4"),  # device memory, or resident memory on a CPU
    ("num_allocator_retries", "i4"),
)
"""Name and NumPy type of every field of a step record."""

ADDED_FIELDS: Mapping[str, float] = {
    "rank_wait_s": 0,
    "compile_s": 0,
    "num_image_tokens": 0,
    **dict.fromkeys((*STEP_PARTS, "core_wait_s", *DEVICE_FIELDS, *LOADER_FIELDS), math.nan),
    **dict.fromkeys(("model_flops", "mfu"), math.nan),
}
"""Fields that older versions of this format lack, with their default values; `StepFile.lacking` has
their names."""

_LEAP_S = 10 * 365 * 86400.0
"""Ten years: no clock jumps that far while steps are written."""

_LAST_VALUES = ("loss", "grad_norm", "learning_rate", "memory_peak_bytes")
"""Last fields of the record; at least the memory of a complete one is not zero."""
_NEARLY_ZERO = 1e-37
"""Smallest valid float32: a smaller one has lost its last byte, which holds the exponent."""

_COUNTS = tuple(name for name, _ in STEP_FIELDS if name.startswith("num_"))

_PACKER = struct.Struct("<" + "".join(STRUCT_CODES[code] for _, code in STEP_FIELDS))
_FIELD_NAMES = tuple(name for name, _ in STEP_FIELDS)


def steps_path(timing_dir: Path, rank: int) -> Path:
    """Return the file of the step records of `rank`."""
    return timing_dir / f"rank-{rank:05d}.steps"


PROCESS_EXIT_SPAN = "process_exit"
"""Span from the return of a stage's function to the end of its process; its keeper writes it."""


PROFILE_WRITE_SPAN = "profile_write"
"""Span of writing the steps that a rank profiled; it names them by `first_step` and `num_steps`."""


def spans_path(timing_dir: Path, rank: int) -> Path:
    """Return the file of the spans of `rank`."""
    return timing_dir / f"rank-{rank:05d}.spans.jsonl"


def steps_header(metadata: Mapping[str, Any]) -> bytes:
    """Return the first line of a step file: format, fields, and the writer's metadata."""
    return _header_line(HEADERS_FORMAT_NAME, [list(field) for field in STEP_FIELDS], metadata)


def pack_step(values: Mapping[str, float | int]) -> bytes:
    """Return one step record as bytes.

    Raises:
        KeyError: a field of `STEP_FIELDS` is missing from `values`.
    """
    return _PACKER.pack(*(values[name] for name in _FIELD_NAMES))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFile:
    """Content of a step file."""

    metadata: Mapping[str, Any]
    steps: np.ndarray
    """Structured array, one entry for each record, fields as in `STEP_FIELDS`."""
    lacking: frozenset[str] = frozenset()
    """Fields of `ADDED_FIELDS` that the file does not have."""
    num_damaged: int = 0
    """Number of records left out: the first damaged one, and all after it."""


def read_steps(path: Path) -> StepFile:
    """Read a step file up to the first damaged record; skip a truncated one at the end.

    Raises:
        ValueError: the file is not a step file, of another version, or lacks a field.
    """
    import numpy as np

    with open_regular(path) as stream:
        header = read_header(stream, path)
        dtype = np.dtype([(name, "<" + code) for name, code in header["fields"]])
        payload = rest_of(stream, path, most_bytes=MOST_MEASURED_BYTES)
    lacking = frozenset(_FIELD_NAMES) - frozenset(dtype.names or ())
    if unknown := lacking - ADDED_FIELDS.keys():
        message = f"{path}: its records lack {', '.join(sorted(unknown))}"
        raise ValueError(message)
    steps = _records(payload, dtype)
    if lacking:
        full = np.zeros(len(steps), [(name, "<" + code) for name, code in STEP_FIELDS])
        for name in _FIELD_NAMES:
            full[name] = ADDED_FIELDS[name] if name in lacking else steps[name]
        steps = full
    # A node's crash leaves blocks of zeros in a file, also where data was written (delayed
    # allocation). The first block begins within a record, whose end is then zero.
    is_valid = (steps["start_unix_s"] > 0) & (steps["start_unix_s"] < END_OF_TIME_S)
    is_valid[1:] &= steps["step"][1:] > steps["step"][:-1]
    is_valid[1:] &= np.abs(np.diff(steps["start_unix_s"])) < _LEAP_S
    for name in STEP_PHASES:
        is_valid &= np.abs(steps[name]) < END_OF_TIME_S
    is_valid &= (steps["step_s"] >= 0) & (steps["step_s"] < END_OF_TIME_S)
    for name in _COUNTS:
        is_valid &= steps[name] >= 0
    has_end = [~(np.abs(steps[name]) < _NEARLY_ZERO) for name in _LAST_VALUES]  # NaN is a value
    num_valid = _num_before_damage(is_valid & np.any(has_end, axis=0))
    return StepFile(
        metadata=header["metadata"],
        steps=steps[:num_valid],
        lacking=lacking,
        num_damaged=len(steps) - num_valid,
    )


def read_spans(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read the spans of a file: `name`, `start_unix_s`, `duration_s` and further values.

    Returns:
        The spans, and the number of damaged lines (no JSON, a value that is no span, or beyond
            `_MOST_SPANS`); a truncated last line does not count.
    """
    lines = read_bytes(path, most_bytes=MOST_MEASURED_BYTES).split(b"\n")[:-1]
    spans, num_damaged = [], max(0, len(lines) - _MOST_SPANS)
    for line in lines[:_MOST_SPANS]:
        try:
            span = json.loads(line)
        except (ValueError, RecursionError):
            span = None
        if _is_span(span):
            spans.append({**span, "name": truncated(span["name"])})
        else:
            num_damaged += 1
    return spans, num_damaged


_MOST_SPANS = 50_000
"""Own choice: a rank records some ten for each checkpoint, evaluation and profile."""


def _is_span(value: Any) -> bool:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("name"), str)
        or not is_moment(value.get("start_unix_s"))
        or not is_moment(value.get("duration_s"))
    ):
        return False
    steps = [value[name] for name in ("first_step", "num_steps") if name in value]
    is_whole = value["name"] != PROFILE_WRITE_SPAN or len(steps) != 1
    return is_whole and all(map(is_count, steps))
