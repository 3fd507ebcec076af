"""Python stacks of a running rank, written on request, and the phase that they show.

The rank registers `faulthandler` on a signal, whose handler needs no interpreter lock: it also
answers if the main thread hangs inside a C call. The keeper writes a line before it sends the
signal, so that each request is a section of the file, and a rank that cannot answer is visible.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurm_jobs.common.heartbeat import stacks_path

STACKS_SIGNAL = signal.SIGQUIT
"""Signal from the keeper to its rank. The JVM and Go use it for the same purpose; SIGUSR1 belongs
to NCCL's tools, and SIGUSR2 asks a rank to stop."""
REQUEST_SIGNAL = signal.SIGUSR1
"""Signal from the supervisor, or a user's `scancel --signal=USR1`, to the keepers. srun forwards
it."""
_SECTION = "--- stacks of process "
_MAIN_THREAD = "main thread "
_THREAD = re.compile(r"(?:Current t|T)hread (0x[0-9a-f]+)")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_FOLDERS = re.compile(r".*(?:/site-packages|/lib/python3\.\d+|/code/[0-9a-f]+/(?:lib|user))/")
_stream: IO[bytes] | None = None
"""File that is open as long as the process lives: `faulthandler` writes to its descriptor."""

PHASES: tuple[tuple[str, str], ...] = (
    ("pipeline/training/checkpoint/", "a checkpoint"),
    ("torch/distributed/checkpoint/", "a checkpoint"),
    ("pipeline/training/held_out", "an evaluation"),
    ("pipeline/training/evaluate", "an evaluation"),
    ("pipeline/training/export", "the export"),
    ("pipeline/training/trackers", "a tracker"),
    ("pipeline/stage_in/", "staging"),
    ("pipeline/training/staging", "staging"),
    ("pipeline/training/preflight/", "the preflight"),
    ("pipeline/data/", "the data loader"),
    ("torch/utils/data/", "the data loader"),
    ("pipeline/models/loading", "reading weights"),
    ("pipeline/training/strategies/", "the strategy"),
    ("torch/_inductor/", "a compilation"),
    ("torch/_dynamo/", "a compilation"),
)
"""Parts of file names, with the phase of a rank that has such a frame; the innermost match decides.
"""
_THREADED = frozenset({"the data loader", "staging"})
"""Phases in which the main thread waits for worker threads."""
_LOOP = "pipeline/training/loop.py"
_LOOP_PHASES = {
    "_accumulate": "the forward or backward pass",
    "_clip": "the clipping of gradients",
    "_update": "the optimizer",
}
"""Phase by function of the training loop."""
_COLLECTIVES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/c10d_logger.py",
    "torch/distributed/_functional_collectives.py",
    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
    "torch/distributed/rendezvous.py",
    "pipeline/training/ranks.py",
    "pipeline/training/meeting.py",
)
"""Files whose frames, near the innermost one, indicate a wait for other ranks."""
_NUM_INNERMOST = 4
_TORCH_WAITS = ("/torch/cuda/streams.py", "/torch/cuda/__init__.py")
"""Files of torch in which a thread waits for an event of a GPU; the calling frame is more
informative."""
_DEVICE_WAITS = (*_TORCH_WAITS, "pipeline/training/verdict.py")
"""Files whose frames, near the innermost one, indicate a wait for the device."""
_DEVICE_READS = (".tolist(", ".item(", ".cpu(", "SYNC")
"""Calls in the innermost line of Python that read a value of the device, and wait for it there."""
_POOL = "/concurrent/futures/thread.py"
_WAITS = ("/threading.py", "/queue.py", "/concurrent/futures/", "/selectors.py")
"""Files of Python in which a thread waits for another; the calling frame is more informative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: str
    function: str

    @property
    def number(self) -> int:
        """Return the line as a number; 0 if unknown."""
        return int(self.line) if self.line.isdecimal() else 0

    def __str__(self) -> str:
        """Return the frame in readable form, without the folders of packages."""
        return f"{self.function} ({_FOLDERS.sub('', self.file)}:{self.line})"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStacks:
    """Answer of a rank to the last request."""

    was_asked: bool
    """True if the rank's keeper got the request."""
    state: str
    """State of the process, from its keeper: `S (sleeping)`; empty if unknown."""
    main: tuple[Frame, ...]
    """Frames of the main thread, innermost first; empty if the rank did not answer."""
    others: tuple[tuple[Frame, ...], ...]

    @property
    def is_in_collective(self) -> bool:
        """Return whether the rank waits for other ranks, in its main thread or a backward pass."""
        return self.collective is not None

    @property
    def collective(self) -> tuple[Frame, Frame] | None:
        """Return the call that waits for other ranks, and the line that called it."""
        stacks = [self.main]
        if self.main and self.main[0].function == "_engine_run_backward":
            # Hooks of a GPU's backward pass run in a thread of torch, which Python did not start.
            stacks += [stack for stack in self.others if not _is_python_thread(stack)]
        for stack in stacks:
            inside = [frame for frame in stack[:_NUM_INNERMOST] if _matches(frame, _COLLECTIVES)]
            if inside:
                callers = stack[stack.index(inside[-1]) + 1 :]
                return inside[0], next(iter(callers), inside[-1])
        return None

    @property
    def waits_for_device(self) -> bool:
        """Return whether the main thread waits for a value or an event of the device.

        A kernel may not end, or other ranks have not joined a collective of the device.
        """
        if not self.main:
            return False
        inner = self.main[:_NUM_INNERMOST]
        if any(_matches(frame, _DEVICE_WAITS) for frame in inner):
            return True
        source = linecache.getline(self.main[0].file, self.main[0].number)
        is_read = any(word in source for word in _DEVICE_READS)
        return is_read or self.main[0].file.endswith(_LOOP)

    @property
    def is_in_passes(self) -> bool:
        """Return whether the main thread is in a forward or backward pass.

        Models read values of the device there, also in lines that do not show it: on a GPU the rank
        may wait for a collective that other ranks have not joined.
        """
        return any(
            frame.file.endswith(_LOOP) and frame.function == "_accumulate" for frame in self.main
        )

    @property
    def phase(self) -> str:
        """Return the phase of the main thread; empty if its frames do not show it."""
        if self.waits_for_device:
            return "a wait for the device"
        return _phase_of(self.main)

    @property
    def innermost(self) -> Frame | None:
        """Return the most informative frame: the innermost except Python's waits for a thread.

        If the main thread waits for threads of its loader, or of staging, it is the frame of the
        working thread. That thread has frames in files of the phase or, if it belongs to a pool, in
        files without a phase.
        """
        calling = _calling(self.main)
        if calling != list(self.main) and self.phase in _THREADED:
            threads = [stack for stack in self.others if _is_python_thread(stack)]
            working = [stack for stack in threads if _calling(stack)]
            same = [stack for stack in working if _phase_of(stack) == self.phase]
            unknown = [stack for stack in working if not _phase_of(stack) and _is_pooled(stack)]
            first = min(same + unknown, key=lambda stack: _matches(stack[0], _WAITS), default=())
            calling = _calling(first) or calling
        return calling[0] if calling else None


def _phase_of(stack: Sequence[Frame]) -> str:
    """Return the phase of the innermost frame that has one."""
    for frame in stack:
        for part, phase in PHASES:
            if part in frame.file:
                return phase
        if frame.file.endswith(_LOOP) and frame.function in _LOOP_PHASES:
            return _LOOP_PHASES[frame.function]
    return ""


def _calling(stack: Sequence[Frame]) -> list[Frame]:
    """Return the frames without those in which Python waits for a thread, or torch for an event."""
    return [frame for frame in stack if not _matches(frame, (*_WAITS, *_TORCH_WAITS))]


def _is_python_thread(stack: Sequence[Frame]) -> bool:
    return bool(stack) and _matches(stack[-1], _WAITS)


def _is_pooled(stack: Sequence[Frame]) -> bool:
    return any(_POOL in frame.file for frame in stack)


def _matches(frame: Frame, parts: Sequence[str]) -> bool:
    return any(part in frame.file for part in parts)


def register_stacks(task_dir: Path, rank: int) -> None:
    """Let this process answer requests; call it in the main thread.

    Raises:
        OSError: the file cannot be opened.
    """
    global _stream  # noqa: PLW0603 - one process is one rank
    stream = stacks_path(task_dir, rank).open("ab", buffering=0)
    stream.write(f"{_MAIN_THREAD}0x{threading.main_thread().ident:016x}\n".encode())
    faulthandler.register(STACKS_SIGNAL, stream, all_threads=True, chain=False)
    _stream = stream


def request_stacks(task_dir: Path, rank: int, pid: int) -> None:
    """Make a rank's process write its stacks; do nothing if it has not registered."""
    path = stacks_path(task_dir, rank)
    with suppress(OSError):
        if not path.exists():
            return
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        state = _process_state(pid)
        with path.open("ab", buffering=0) as stream:
            stream.write(f"\n{_SECTION}{pid} at {now}, state {state}\n".encode())
        os.kill(pid, STACKS_SIGNAL)


def _process_state(pid: int) -> str:
    """Return the state of a process and, if the kernel shows it, the call that it waits in."""
    state, call = "unknown", ""
    with suppress(OSError, IndexError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        state = next(line for line in lines if line.startswith("State:")).split(":", 1)[1].strip()
    with suppress(OSError):
        call = Path(f"/proc/{pid}/wchan").read_text(errors="replace").strip("0 \n")
    return f"{state} in {call}" if call else state


def read_stacks(task_dir: Path, rank: int) -> RankStacks:
    """Return the rank's answer to the last request."""
    text = ""
    with suppress(OSError):
        text = stacks_path(task_dir, rank).read_text(errors="replace")
    return parse_stacks(text)


def parse_stacks(text: str) -> RankStacks:
    """Return the last section of a file of stacks."""
    before, separator, section = text.rpartition(_SECTION)
    if not separator:
        return RankStacks(was_asked=False, state="", main=(), others=())
    header, _, body = section.partition("\n")
    main_thread = before.partition(_MAIN_THREAD)[2].partition("\n")[0]
    stacks: dict[str, list[Frame]] = {}
    frames: list[Frame] = []
    for line in body.splitlines():
        if (thread := _THREAD.match(line)) is not None:
            frames = stacks.setdefault(thread[1], [])
        elif (frame := _FRAME.match(line)) is not None:
            frames.append(Frame(**frame.groupdict()))
    return RankStacks(
        was_asked=True,
        state=header.partition(", state ")[2],
        main=tuple(stacks.pop(main_thread, ())),
        others=tuple(map(tuple, stacks.values())),
    )
