"""Files of PyTorch's profiler in an attempt's timing folder, and a reader of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.json_values import is_amount, is_count, is_number, is_text
from slurm_jobs.formats.records.record_json import record_from_json

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
