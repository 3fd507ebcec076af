"""The files of PyTorch's profiler in an attempt's timing folder, and its operators read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.common.files import read_json
from slurm_jobs.common.records import known_fields

FORMAT_NAME = "slurm-jobs-operators-1"


def trace_path(timing_dir: Path, rank: int) -> Path:
    """A Chrome trace, for chrome://tracing or ui.perfetto.dev."""
    return timing_dir / f"rank-{rank:05d}.trace.json.gz"


def operators_path(timing_dir: Path, rank: int) -> Path:
    """The table of operators, for programs."""
    return timing_dir / f"rank-{rank:05d}.operators.json"


def operators_text_path(timing_dir: Path, rank: int) -> Path:
    """The table of operators, for people."""
    return timing_dir / f"rank-{rank:05d}.operators.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """All calls of one operator, or of one kernel, in the recorded steps."""

    name: str
    kind: Literal["operator", "kernel"]
    """A kernel runs on the device; the time of those that an operator started is its own, too."""
    num_calls: int
    self_cpu_s: float
    """Without what it called."""
    cpu_s: float
    self_device_s: float
    device_s: float
    cpu_share: float
    """Of the time on the host, by `self_cpu_s`."""
    device_share: float
    """Of the time that kernels took, by `self_device_s`; 0 without a device."""
    self_cpu_bytes: int | None
    """Allocated less freed; None without `profile.memory`."""
    self_device_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorTable:
    """What `rank-00000.operators.json` holds."""

    first_step: int
    num_steps: int
    wall_s: float
    """Of all recorded steps together, slowed down as they are by being recorded."""
    operators: Sequence[Operator]
    """By time, most first: of the device if there is one."""
    communication_s: float | None = None
    """Of `wall_s`, how long at least one collective was under way on this rank; None where an
    older version wrote the file."""
    exposed_communication_s: float | None = None
    """And nothing was computed beside it."""


def read_operators(path: Path) -> OperatorTable:
    """Read a table of operators.

    Raises:
        ValueError: the file is none, or of another version.
    """
    values: dict[str, Any] = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT_NAME:
        found = values.get("format") if isinstance(values, dict) else values
        message = f"{path}: format {found!r}, expected {FORMAT_NAME!r}"
        raise ValueError(message)
    try:
        known = known_fields(OperatorTable, values)
        rows = [Operator(**known_fields(Operator, row)) for row in known["operators"]]
        return OperatorTable(**{**known, "operators": rows})
    except (KeyError, TypeError, AttributeError) as error:
        message = f"{path}: damaged: it lacks a part of what an operator, or the table, has"
        raise ValueError(message) from error
