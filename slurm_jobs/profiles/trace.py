"""Reader of Chrome traces of PyTorch's profiler: arrays with one row per piece of work.

Kinds and names are those of Kineto. `kernel`, `gpu_memcpy` and `gpu_memset` are on a device,
`cpu_op` is on the host; `gloo:...` and NCCL's kernels are collectives. `step 20` is the range that
our recorder draws around an optimizer step; the device shows it as `gpu_user_annotation`.
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

from slurm_jobs.common.errors import DamagedFileError

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


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        OSError: it cannot be read.
        DamagedFileError: it is cut short, or not a trace.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
            events = json.load(stream)["traceEvents"]
        return _trace([event for event in events if event.get("ph") == "X"])
    except _DAMAGE as error:
        message = f"{path}: no whole Chrome trace ({error!r:.80}); profile the steps again"
        raise DamagedFileError(message) from error


def _trace(found: list[dict[str, Any]]) -> Trace:
    has_device = any(event.get("cat") == "kernel" for event in found)
    on_device = _steps(found, "gpu_user_annotation") if has_device else ()
    return Trace(
        has_device=has_device,
        compute=_pieces(found, lambda e: _is_compute(e, has_device=has_device)),
        communication=_pieces(found, lambda e: _is_collective(e, has_device=has_device)),
        copies=_pieces(found, lambda e: e.get("cat") in _COPIES),
        steps=on_device or _steps(found, "user_annotation"),
    )


def _steps(events: list[dict[str, Any]], kind: str) -> tuple[tuple[int, float, float], ...]:
    marks = [event for event in events if event.get("cat") == kind]
    named = [(_STEP.fullmatch(str(event.get("name"))), event) for event in marks]
    return tuple(sorted((int(match[1]), *_times(event)) for match, event in named if match))


def _pieces(events: list[dict[str, Any]], is_meant: Any) -> Pieces:
    chosen = sorted((*_times(e), str(e.get("name", ""))) for e in events if is_meant(e))
    return Pieces(
        starts_s=np.array([start for start, _, _ in chosen], np.float64),
        ends_s=np.array([end for _, end, _ in chosen], np.float64),
        names=tuple(name for _, _, name in chosen),
    )


def _times(event: dict[str, Any]) -> tuple[float, float]:
    """Return start and end.

    Raises:
        TypeError: they are no numbers.
        ValueError: they are no moments.
    """
    start_us, length_us = event.get("ts") or 0.0, event.get("dur") or 0.0
    for value in (start_us, length_us):
        if not isinstance(value, int | float):
            message = f"{value!r:.20} is no number of microseconds"
            raise TypeError(message)
    start_s, length_s = start_us * _US, length_us * _US
    if not (math.isfinite(start_s) and math.isfinite(length_s)):
        message = f"from {start_us!r:.20} on for {length_us!r:.20} microseconds"
        raise ValueError(message)
    return start_s, start_s + length_s


def _is_collective(event: dict[str, Any], *, has_device: bool) -> bool:
    """Check for a collective in the same way as `pipeline.timing.overlap`."""
    name = str(event.get("name", ""))
    if has_device:
        return event.get("cat") == "kernel" and name.startswith("nccl")
    return event.get("cat") not in _ON_DEVICE and name.startswith("gloo:")


def _is_compute(event: dict[str, Any], *, has_device: bool) -> bool:
    name = str(event.get("name", ""))
    if has_device:
        return event.get("cat") == "kernel" and not name.startswith("nccl")
    is_operator = "::" in name and not name.startswith(_NO_COMPUTATION)
    return event.get("cat") == _HOST_WORK and is_operator
