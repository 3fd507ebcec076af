"""Reader of Chrome traces of PyTorch's profiler: arrays with one row per piece of work.

Kinds and names are those of Kineto. `kernel`, `gpu_memcpy` and `gpu_memset` are on a device,
`cpu_op` is on the host; `gloo:...` and NCCL's kernels are collectives. `step 20` is the range
that our recorder draws around an optimizer step; the device shows it as `gpu_user_annotation`.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.regular_files import open_regular

_STEP = re.compile(r"step (\d+)")
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset"})
_HOST_WORK = "cpu_op"
_NO_COMPUTATION = ("gloo:", "c10d::", "FSDP::", "autograd::", "DistributedDataParallel")
"""Prefixes of operators that are collectives, or that contain others."""
_US = 1e-6
_DAMAGE = (
    *(EOFError, gzip.BadGzipFile, zlib.error),
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
)
"""Errors raised by a damaged file, or by values of other types than Kineto's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pieces:
    """Pieces of work of one sort, in the order of their starts."""

    starts_s: np.ndarray
    """float64 [num_pieces], seconds by the profiler's clock."""
    ends_s: np.ndarray
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Work of one rank in the recorded steps."""

    has_device: bool
    """True if kernels were recorded: then the work is the device's, otherwise the host's."""
    compute: Pieces
    """Kernels that are not collectives; on a CPU, operators of ATen and of other libraries."""
    communication: Pieces
    copies: Pieces
    """Between host and device, and on the device."""
    steps: tuple[tuple[int, float, float], ...]
    """Number, start and end of each recorded step: on the device if it shows them, otherwise on the
    host."""


def read_trace(path: Path, *, most_bytes: int = 2 << 30) -> Trace:
    """Read a trace of at most `most_bytes` when it is not compressed.

    Raises:
        OSError: it cannot be read.
        DamagedFileError: it is cut short, larger, or not a trace.
    """
    try:
        # A megabyte of gzip can hold a gigabyte.
        with open_regular(path) as packed, gzip.GzipFile(fileobj=packed) as stream:
            text = stream.read(most_bytes + 1)
        if len(text) > most_bytes:
            message = f"{path}: a trace of more than {most_bytes / 2**20:,.0f} MiB is not read"
            raise DamagedFileError(message)
        events = json.loads(text.decode(errors="replace"))["traceEvents"]
        return _trace([event for event in events if event.get("ph") == "X"])
    except DamagedFileError:
        raise
    except _DAMAGE as error:
        message = f"{path}: no whole Chrome trace ({error!r:.80}); profile the steps again"
        raise DamagedFileError(message) from error


def _trace(events: list[dict[str, Any]]) -> Trace:
    has_device = any(event.get("cat") == "kernel" for event in events)
    # Collectives are recognised in the same way as by `pipeline.timing.communication`.
    compute: list[dict[str, Any]] = []
    communication: list[dict[str, Any]] = []
    for event in events:
        kind, name = event.get("cat"), str(event.get("name", ""))
        if has_device:
            is_collective = kind == "kernel" and name.startswith("nccl")
            is_compute = kind == "kernel" and not is_collective
        else:
            is_collective = kind not in _ON_DEVICE and name.startswith("gloo:")
            is_operator = "::" in name and not name.startswith(_NO_COMPUTATION)
            is_compute = kind == _HOST_WORK and is_operator
        if is_collective:
            communication.append(event)
        elif is_compute:
            compute.append(event)
    on_device = _steps(events, "gpu_user_annotation") if has_device else ()
    return Trace(
        has_device=has_device,
        compute=_pieces(compute),
        communication=_pieces(communication),
        copies=_pieces([event for event in events if event.get("cat") in _COPIES]),
        steps=on_device or _steps(events, "user_annotation"),
    )


def _steps(events: list[dict[str, Any]], kind: str) -> tuple[tuple[int, float, float], ...]:
    marks = [event for event in events if event.get("cat") == kind]
    named = [(_STEP.fullmatch(str(event.get("name"))), event) for event in marks]
    return tuple(sorted((int(match[1]), *_times(event)) for match, event in named if match))


def _pieces(events: list[dict[str, Any]]) -> Pieces:
    ordered = sorted((*_times(event), str(event.get("name", ""))) for event in events)
    return Pieces(
        starts_s=np.array([start for start, _, _ in ordered], np.float64),
        ends_s=np.array([end for _, end, _ in ordered], np.float64),
        names=tuple(name for _, _, name in ordered),
    )


def _times(event: dict[str, Any]) -> tuple[float, float]:
    start_us, length_us = event.get("ts") or 0.0, event.get("dur") or 0.0
    for value in (start_us, length_us):
        if not isinstance(value, int | float):
            message = f"{value!r:.20} is not a number of microseconds"
            raise TypeError(message)
    start_s, length_s = start_us * _US, length_us * _US
    if not (math.isfinite(start_s) and math.isfinite(length_s)):
        message = f"from {start_us!r:.20} on for {length_us!r:.20} microseconds"
        raise ValueError(message)
    return start_s, start_s + length_s
