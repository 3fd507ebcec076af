"""Records of training steps: one fixed-size record for each step and rank, and spans for the rest.

Step records are appended to `rank-00000.steps`: a JSON header line, then packed little-endian
records. A file that a kill truncates loses at most its last record, and six million records are
read as one array. Spans are JSON lines in `rank-00000.spans.jsonl`.

Host time comes from clocks that add up: the phases of a step sum to `step_s`, and `other_s` is the
unexplained rest. Device time is recorded separately, cut at the same places, and is never added to
it.

A training on several manifests has two more fields for each: `manifest_0_loss` (float32), the mean
loss of its targets on all ranks, NaN without one, and `manifest_0_targets` (int32), their number.
The header names the manifests.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.json_values import END_OF_TIME_S, is_count, is_moment
from slurm_jobs.base.regular_files import MOST_MEASURED_BYTES, open_regular, read_bytes, rest_of
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.timings.manifest_losses import manifest_fields, recorded_manifests
from slurm_jobs.formats.timings.record_headers import (
    HEADERS_FORMAT_NAME,
    STRUCT_CODES,
    header_line,
    num_before_damage,
    read_header,
    read_records,
)

if TYPE_CHECKING:
    import numpy as np


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
    fields = _fields_with(len(recorded_manifests(metadata)))
    return header_line(HEADERS_FORMAT_NAME, [list(field) for field in fields], metadata)


def pack_step(values: Mapping[str, float | int], *, num_manifests: int = 0) -> bytes:
    """Return one step record as bytes, for a header that names `num_manifests`.

    Raises:
        KeyError: a field is missing from `values`.
    """
    packer, names = _packing(num_manifests)
    return packer.pack(*(values[name] for name in names))


@functools.cache
def _packing(num_manifests: int) -> tuple[struct.Struct, list[str]]:
    fields = _fields_with(num_manifests)
    codes = "".join(STRUCT_CODES[code] for _, code in fields)
    return struct.Struct("<" + codes), [name for name, _ in fields]


def _fields_with(num_manifests: int) -> list[tuple[str, str]]:
    # The last fields of `STEP_FIELDS` stay the last, because they show whether a record is whole.
    num_first = _FIELD_NAMES.index(_LAST_VALUES[0])
    first, last = STEP_FIELDS[:num_first], STEP_FIELDS[num_first:]
    return [*first, *manifest_fields(num_manifests), *last]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFile:
    """Content of a step file."""

    metadata: Mapping[str, Any]
    steps: np.ndarray
    """Structured array, one entry for each record, fields as in `STEP_FIELDS`, and those of
    `manifest_fields` if `metadata` names manifests."""
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
    fields = _fields_with(len(recorded_manifests(header["metadata"])))
    lacking = frozenset(name for name, _ in fields) - frozenset(dtype.names or ())
    if unknown := lacking - ADDED_FIELDS.keys():
        message = f"{path}: its records lack {', '.join(sorted(unknown))}"
        raise ValueError(message)
    steps = read_records(payload, dtype)
    if lacking:
        full = np.zeros(len(steps), [(name, "<" + code) for name, code in fields])
        for name, _ in fields:
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
    num_valid = num_before_damage(is_valid & np.any(has_end, axis=0))
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
