"""Python stacks of a running rank, written on request, and the phase that they show.

The keeper writes a line before it sends the signal, so that each request is a section of the
file, and a rank that cannot answer is visible.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import threading
import time
import zipimport
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurm_jobs.base.processes.signal_handlers import write_stacks_on
from slurm_jobs.base.regular_files import MOST_MEASURED_BYTES, read_text
from slurm_jobs.formats.records.heartbeat import stacks_path

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
_FOLDERS = re.compile(
    r"^.*(?:/site-packages|/lib/python3\.\d+|/code/[0-9a-f]+/(?:lib\.zip|lib|user))/"
)
LIBRARIES = re.compile(r"/site-packages/|/lib/python3\.\d+/|^<frozen |/slurm_jobs/worker/")
"""Files that are neither a stage's own nor of `pipeline`."""
_stream: IO[bytes] | None = None
"""File that is open as long as the process lives: `faulthandler` writes to its descriptor."""

PHASES: tuple[tuple[str, str], ...] = (
    ("pipeline/train/checkpoint", "a checkpoint"),
    ("torch/distributed/checkpoint/", "a checkpoint"),
    ("pipeline/train/held_out", "an evaluation"),
    ("pipeline/train/evaluate", "an evaluation"),
    ("pipeline/train/export", "the export"),
    ("pipeline/train/reporting/trackers", "a tracker"),
    ("pipeline/stage_in/", "staging"),
    ("pipeline/train/training_data/staging", "staging"),
    ("pipeline/train/preflight", "the preflight"),
    ("pipeline/data/", "the data loader"),
    ("torch/utils/data/", "the data loader"),
    ("pipeline/models/loading", "reading weights"),
    ("pipeline/train/strategies", "the strategy"),
    ("torch/_inductor/", "a compilation"),
    ("torch/_dynamo/", "a compilation"),
)
"""Parts of file names, with the phase of a rank that has such a frame; the innermost match decides.
"""
_THREADED = frozenset({"the data loader", "staging"})
"""Phases in which the main thread waits for worker threads."""
_LOOP = "pipeline/train/loop.py"
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
    "pipeline/train/ranks/patient_wait.py",
    "pipeline/train/ranks/process_group.py",
)
"""Files whose frames, near the innermost one, indicate a wait for other ranks."""
_NUM_INNERMOST = 4
_TORCH_WAITS = ("/torch/cuda/streams.py", "/torch/cuda/__init__.py")
"""Files of torch in which a thread waits for an event of a GPU; the calling frame is more
informative."""
_DEVICE_WAITS = (*_TORCH_WAITS, "pipeline/train/verdict.py")
"""Files whose frames, near the innermost one, indicate a wait for the device."""
_DEVICE_READS = (".tolist(", ".item(", ".cpu(", "SYNC")
"""Calls in the innermost line of Python that read a value of the device, and wait for it there."""
_POOL = "/concurrent/futures/thread.py"
_WAITS = ("/threading.py", "/queue.py", "/concurrent/futures/", "/selectors.py")
"""Files of Python in which a thread waits for another; the calling frame is more informative."""

_SILENT, _ELSEWHERE, _IN_PASSES, _AT_DEVICE, IN_COLLECTIVE = range(5)
"""What a rank does; see `describe_cause`."""


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

    def source_line(self) -> str:
        """Return the line of code; empty if it cannot be read."""
        archive, _, name = self.file.rpartition("/lib.zip/")
        try:
            text = zipimport.zipimporter(f"{archive}/lib.zip").get_data(name).decode()
        except (ImportError, OSError):
            return linecache.getline(self.file, self.number)
        return "".join(text.splitlines()[self.number - 1 : self.number])

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
    def collective(self) -> tuple[Frame, Frame] | None:
        """Return the call that waits for other ranks, and the line that called it.

        The main thread is in it, or a thread of its backward pass.
        """
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
        innermost = self.main[0]
        source = innermost.source_line()
        return (
            any(_matches(frame, _DEVICE_WAITS) for frame in self.main[:_NUM_INNERMOST])
            or any(word in source for word in _DEVICE_READS)
            or innermost.file.endswith(_LOOP)
        )

    @property
    def kind(self) -> int:
        """Return the class of what the main thread does; the lowest of all ranks is the cause.

        Models read values of the device in a pass, also in lines that do not show it: on a GPU the
        rank may wait for a collective that other ranks have not joined.
        """
        if not self.main:
            return _SILENT
        if self.collective is not None:
            return IN_COLLECTIVE
        if self.waits_for_device:
            return _AT_DEVICE
        in_pass = (f.file.endswith(_LOOP) and f.function == "_accumulate" for f in self.main)
        return _IN_PASSES if any(in_pass) else _ELSEWHERE

    @property
    def phase(self) -> str:
        """Return the phase of the main thread; empty if its frames do not show it."""
        if self.waits_for_device:
            return "a wait for the device"
        return _phase_of(self.main)

    @property
    def innermost(self) -> Frame | None:
        """Return the frame to show: the innermost that is not a wait for a thread.

        If the main thread waits for threads of its loader, or of staging, that is the frame of a
        working thread: one with a frame of the same phase, or one of a pool that shows no phase.
        """
        calling = _calling(self.main)
        if calling != list(self.main) and self.phase in _THREADED:
            threads = [stack for stack in self.others if _is_python_thread(stack)]
            working = [stack for stack in threads if _calling(stack)]
            same = [stack for stack in working if _phase_of(stack) == self.phase]
            pooled = [stack for stack in working if any(_POOL in frame.file for frame in stack)]
            unknown = [stack for stack in pooled if not _phase_of(stack)]
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


def _matches(frame: Frame, parts: Sequence[str]) -> bool:
    return any(part in frame.file for part in parts)


def register_stacks(task_dir: Path, rank: int) -> None:
    """Let this process answer requests; call it in the main thread.

    Raises:
        OSError: the file cannot be opened.
    """
    global _stream  # noqa: PLW0603 - one process is one rank
    stream = stacks_path(task_dir, rank).open("ab", buffering=0)
    write_stacks_on(STACKS_SIGNAL, stream)
    # Last, because a request is sent where the file has content, and would end the process before.
    stream.write(f"{_MAIN_THREAD}0x{threading.main_thread().ident:016x}\n".encode())
    _stream = stream


def request_stacks(task_dir: Path, rank: int, pid: int) -> None:
    """Make a rank's process write its stacks; do nothing if it has not registered."""
    path = stacks_path(task_dir, rank)
    with suppress(OSError):
        if not path.stat().st_size:
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
        path = stacks_path(task_dir, rank)
        text = read_text(path, most_bytes=MOST_MEASURED_BYTES, errors="replace")
    return parse_stacks(text)


def parse_stacks(text: str) -> RankStacks:
    """Return the last section of a file of stacks, as far as its lines are complete."""
    before, separator, section = text.rpartition(_SECTION)
    if not separator:
        return RankStacks(was_asked=False, state="", main=(), others=())
    header, _, body = section.partition("\n")
    main_thread = before.partition(_MAIN_THREAD)[2].partition("\n")[0]
    stacks: dict[str, list[Frame]] = {}
    frames: list[Frame] = []
    for line in body.rpartition("\n")[0].splitlines():  # the rank may still write the last line
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
