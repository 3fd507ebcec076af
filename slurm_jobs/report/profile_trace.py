"""Trace of profiled steps, and how it occupies the device."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slurm_jobs.shared import units
from slurm_jobs.shared.errors import DamagedFileError
from slurm_jobs.shared.regular_files import open_regular

# Reader of Chrome traces of PyTorch's profiler: arrays with one row per piece of work.
#
# Kinds and names are those of Kineto. `kernel`, `gpu_memcpy` and `gpu_memset` are on a device,
# `cpu_op` is on the host; `gloo:...` and NCCL's kernels are collectives. `step 20` is the range
# that our recorder draws around an optimizer step; the device shows it as `gpu_user_annotation`.


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
    """Return start and end, in seconds."""
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


# Time of computation, communication, copies and idleness, from intervals.
#
# On a GPU all of it is from the device's timeline. On a CPU operators and collectives share the
# cores, so that `idle` is the time of Python, of the loader, and of real idleness.


SHORT_KERNEL_S = 10e-6
"""Approximate time of a launch: shorter kernels cannot hide it. Own choice."""
SMALL_COPY_S = 20e-6
"""Time of copying some kilobytes. Own choice."""
_PAGEABLE = "Pageable"
"""Part of the name that Kineto gives a copy from or to memory that is not pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Sums over the recorded steps, in seconds unless stated otherwise."""

    num_steps: int
    wall_s: float
    """From the start of the first recorded step to the end of the last."""
    compute_s: float
    """At least one piece of computation was under way."""
    communication_s: float
    """At least one collective was under way."""
    overlap_s: float
    """Both were under way."""
    copies_s: float
    """A copy was under way."""
    idle_s: float
    """None of these was under way."""
    num_gaps: int
    """Number of intervals in `idle_s`."""
    longest_gap_s: float
    num_pieces: int
    """Number of kernels, or of operators on a CPU."""
    num_short: int
    """Number of pieces shorter than `SHORT_KERNEL_S`."""
    num_copies: int
    num_small_copies: int
    pageable_s: float
    """Part of the copies from or to memory that is not pinned."""

    @property
    def exposed_s(self) -> float:
        """Time of communication without concurrent computation."""
        return self.communication_s - self.overlap_s


def occupancy(trace: Trace, steps: Sequence[tuple[int, float, float]] = ()) -> Occupancy:
    """Return the occupancy of all recorded steps, or of some of them.

    Raises:
        ValueError: no step was recorded.
    """
    chosen = steps or trace.steps
    if not chosen:
        message = "no step is marked in the trace: it was not written by `profile.steps`"
        raise ValueError(message)
    begin, end = min(s[1] for s in chosen), max(s[2] for s in chosen)
    compute, communication = (_merged(p, begin, end) for p in (trace.compute, trace.communication))
    copies = _merged(trace.copies, begin, end)
    busy = _union([compute, communication, copies])
    gaps = np.diff(np.concatenate([[begin], busy.ravel(), [end]]))[::2]
    gaps = gaps[gaps > 0]
    kernels, moved = _within(trace.compute, begin, end), _within(trace.copies, begin, end)
    return Occupancy(
        num_steps=len(chosen),
        wall_s=end - begin,
        compute_s=_length(compute),
        communication_s=_length(communication),
        overlap_s=_length(compute)
        + _length(communication)
        - _length(_union([compute, communication])),
        copies_s=_length(copies),
        idle_s=float(gaps.sum()),
        num_gaps=len(gaps),
        longest_gap_s=float(gaps.max(initial=0.0)),
        num_pieces=len(kernels),
        num_short=int((kernels[:, 1] - kernels[:, 0] < SHORT_KERNEL_S).sum()),
        num_copies=len(moved),
        num_small_copies=int((moved[:, 1] - moved[:, 0] < SMALL_COPY_S).sum()),
        pageable_s=_length(_merged(_named(trace.copies, _PAGEABLE), begin, end)),
    )


def _named(pieces: Pieces, word: str) -> Pieces:
    chosen = np.array([word in name for name in pieces.names], bool)
    return Pieces(
        starts_s=pieces.starts_s[chosen],
        ends_s=pieces.ends_s[chosen],
        names=tuple(name for name in pieces.names if word in name),
    )


def _within(pieces: Pieces, begin: float, end: float) -> np.ndarray:
    """Return the pieces that begin in the interval, [num, 2]."""
    chosen = (pieces.starts_s >= begin) & (pieces.starts_s < end)
    return np.stack([pieces.starts_s[chosen], pieces.ends_s[chosen]], axis=1)


def _merged(pieces: Pieces, begin: float, end: float) -> np.ndarray:
    """Return disjoint intervals that cover the same time, within the bounds: [num, 2]."""
    starts, ends = np.clip(pieces.starts_s, begin, end), np.clip(pieces.ends_s, begin, end)
    return _disjoint(np.stack([starts, ends], axis=1)[ends > starts])


def _union(parts: Sequence[np.ndarray]) -> np.ndarray:
    return _disjoint(np.concatenate(parts))


def _disjoint(intervals: np.ndarray) -> np.ndarray:
    if not len(intervals):
        return np.empty((0, 2))
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    is_first = np.concatenate([[True], ordered[1:, 0] > reached[:-1]])
    lasts = np.concatenate([np.flatnonzero(is_first)[1:] - 1, [len(ordered) - 1]])
    return np.stack([ordered[is_first, 0], reached[lasts]], axis=1)


def _length(intervals: np.ndarray) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


# Recommendations from a profile.
#
# Shares are of recorded steps, which are slower than others.


EXPOSED_SHARE = 0.10
"""PyTorch's profiler calls communication of 10 % of a step or more a bottleneck."""
_IDLE_SHARE = 0.20
_SHORT_SHARE = 0.50
_PAGEABLE_SHARE = 0.01
_SMALL_SHARE, _SMALL_A_STEP = 0.80, 50

LAUNCHES = "idle for 20 % of the profiled steps or more, and half of the kernels under 10 us"
PAGEABLE = "copies that are not pinned take 1 % of the profiled steps or more"
SMALL_COPIES = "50 copies a profiled step or more, of which 80 % take under 20 us"
"""The thresholds in words; all three are our choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFinding:
    """Recommendation from a profile."""

    title: str
    evidence: str
    rule: str
    next_knob: str
    ceiling: str
    share: float
    """Upper bound of the gain, as a share of the recorded steps."""


def find(profile: Occupancy, *, has_device: bool) -> tuple[ProfileFinding, ...]:
    """Return the findings by the share that each can gain, largest first."""
    if profile.wall_s <= 0:
        return ()
    judges = (communication, *(ON_DEVICES.values() if has_device else ()))
    answers = [answer for judge in judges if (answer := judge(profile)) is not None]
    return tuple(sorted(answers, key=lambda a: -a.share))


def overlap_text(profile: Occupancy) -> str:
    """Say whether communication is hidden, and what hiding the rest could gain."""
    if profile.communication_s <= 0:
        return "No collective was recorded."
    hidden = profile.overlap_s / profile.communication_s
    share = profile.exposed_s / profile.wall_s
    gain = units.speed_without(share)
    return (
        f"{units.percent(hidden)} of the communication overlaps with computation; the rest is "
        f"{units.percent(share)} of the steps, so that hiding all of it gives {gain}."
    )


def communication(profile: Occupancy) -> ProfileFinding | None:
    """Find collectives without concurrent computation."""
    share = profile.exposed_s / profile.wall_s
    if share < EXPOSED_SHARE:
        return None
    return ProfileFinding(
        title=f"{units.percent(share)} of the steps is communication without computation",
        evidence=_a_step(profile, profile.exposed_s, "exposed communication"),
        rule="10 % of the step or more (PyTorch's profiler)",
        next_knob="sharding: replicate across nodes, keep gathered weights "
        "(reshard_after_forward: false) or prefetch more; a collective's time has the wait for "
        "the slowest rank in it, so look at the report's stragglers first",
        ceiling=_ceiling(share, "no exposed communication"),
        share=share,
    )


def launches(profile: Occupancy) -> ProfileFinding | None:
    """Find a device that waits for the host between kernels shorter than a launch."""
    idle, short = profile.idle_s / profile.wall_s, profile.num_short / max(1, profile.num_pieces)
    if idle < _IDLE_SHARE or short < _SHORT_SHARE:
        return None
    return ProfileFinding(
        title=f"the device is idle {units.percent(idle)} of the time between short kernels",
        evidence=f"{profile.num_pieces:,} kernels, {units.percent(short)} of them shorter than "
        f"a launch takes; {profile.num_gaps:,} gaps, the longest "
        f"{units.seconds(profile.longest_gap_s)}",
        rule=f"{LAUNCHES} (own choice)",
        next_knob="compile, a larger microbatch, fewer microbatches a step, a fused optimizer",
        ceiling=_ceiling(idle, "no idle device"),
        share=idle,
    )


def pageable(profile: Occupancy) -> ProfileFinding | None:
    """Find copies for which the driver uses a staging buffer while the host waits."""
    share = profile.pageable_s / profile.wall_s
    if share < _PAGEABLE_SHARE:
        return None
    return ProfileFinding(
        title=f"copies through memory that is not pinned take {units.percent(share)}",
        evidence=_a_step(profile, profile.pageable_s, "pageable copies"),
        rule=f"{PAGEABLE} (own choice)",
        next_knob="pin what is copied: the built-in reader does; tensors of your own need "
        "pin_memory() and non_blocking=True",
        ceiling=_ceiling(share, "no pageable copies"),
        share=share,
    )


def small_copies(profile: Occupancy) -> ProfileFinding | None:
    """Find many copies that take longer to start than to transfer."""
    share = profile.num_small_copies / max(1, profile.num_copies)
    a_step = profile.num_copies / profile.num_steps
    if share < _SMALL_SHARE or a_step < _SMALL_A_STEP:
        return None
    copy_share = profile.copies_s / profile.wall_s
    return ProfileFinding(
        title=f"{a_step:,.0f} copies a step, most of them small",
        evidence=f"{units.percent(share)} take less than 20 us; all take "
        f"{units.percent(copy_share)} of the steps, and each delays the host, which waits for it",
        rule=f"{SMALL_COPIES} (own choice)",
        next_knob="gather what goes to the device into one tensor; .item() and printed values "
        "are copies, too",
        ceiling=_ceiling(copy_share, "no copies"),
        share=copy_share,
    )


ON_DEVICES: Mapping[str, Callable[[Occupancy], ProfileFinding | None]] = {
    "kernel-launches": launches,
    "pageable-copies": pageable,
    "small-copies": small_copies,
}
"""Rules on the activity of a device, by name."""


def _a_step(profile: Occupancy, seconds: float, what: str) -> str:
    steps = units.number_of("recorded step", profile.num_steps)
    return f"{units.seconds(seconds / profile.num_steps)} of {what} a step, over {steps}"


def _ceiling(share: float, what: str) -> str:
    return f"{what}: {units.speed_without(share)}"
