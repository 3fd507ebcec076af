"""End of a rank's process that stays alive after its function has returned.

Python waits for all non-daemon threads, for children of `multiprocessing` and for exit handlers.
One that never ends would hold the node until the time limit. So the function's outcome is recorded
as it returns. A thread then waits, names what is left, and ends the process. The keeper does the
same from outside if that thread cannot run (a library's own destructor, or code that holds the
interpreter lock).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.base.processes.signal_handlers import wake_by
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL, stop_requested

PATIENCE_S = 120.0
"""Patience after a function that returned. Exit handlers of libraries upload last values and tear
down GPUs, which takes seconds, rarely a minute. A node that idles for two costs little compared to
lost data."""
FAILED_PATIENCE_S = 10.0
"""Patience after a function that raised or stopped: other ranks, or a requeue, wait for it."""
ASKED_PATIENCE_S = 2.0
"""Patience after a request to end. The supervisor kills keepers 8 s after one."""
KEEPER_MARGIN_S = 3.0
"""Delay after which the keeper ends a process that should have ended itself."""
PATIENCE_VARIABLE = "SLURM_JOBS_EXIT_PATIENCE_S"
_SIGNALS = (RELAY_SIGNAL, signal.SIGTERM, signal.SIGINT)
_POLL_S = 0.2
_MOST_NAMED = 3


def returned_path(task_dir: Path, rank: int) -> Path:
    """Return the file with the outcome of a rank's function, written as it returned."""
    return task_dir / f"rank-{rank:05d}.returned.json"


def late_path(task_dir: Path, rank: int) -> Path:
    """Return the file that names what kept a rank's process alive after its function."""
    return task_dir / f"rank-{rank:05d}.late.json"


def patience_s() -> float:
    """Return how long a process may take to end after its function has returned.

    Raises:
        StageConfigError: the variable that overrides it is not a number of seconds.
    """
    return seconds_of(PATIENCE_VARIABLE, PATIENCE_S)


def seconds_of(variable: str, default_s: float) -> float:
    """Return the seconds that a variable of the environment sets, or the default.

    Raises:
        StageConfigError: its value is not a number of seconds.
    """
    text = os.environ.get(variable)
    if text is None:
        return default_s
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < threading.TIMEOUT_MAX:
        message = f"{variable} is `{text}`: give a number of seconds, such as 600"
        raise StageConfigError(message)
    return value


def note_return(task_dir: Path, rank: int, code: int, patience: float) -> None:
    """Record the function's outcome, before anything can keep the process alive.

    Args:
        task_dir: of the attempt.
        rank: this one.
        code: intended exit code of the process.
        patience: seconds that it may take.
    """
    values = {"exit_code": code, "patience_s": patience, "returned_unix_s": time.time()}
    write_json_atomic(returned_path(task_dir, rank), values)


def end_if_late(task_dir: Path, rank: int) -> None:
    """End this process in time if its function has returned; call it last of all."""
    returned = read_returned(task_dir, rank)
    if returned is None:
        return
    # The kernel may give a signal to any thread, but Python's handlers run in the main thread only,
    # which waits for the others. Only this pipe shows that a signal came.
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wake_by(writing)
    arguments = (task_dir, rank, returned["exit_code"], returned["patience_s"], reading)
    threading.Thread(target=_end_late, args=arguments, name="slurm-jobs-exit", daemon=True).start()


def _end_late(task_dir: Path, rank: int, code: int, patience: float, signals: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # then they stay pending and visible
    start_s = time.monotonic()
    end_s = start_s + patience
    poll = select.poll()  # select() fails with a descriptor above 1,023
    poll.register(signals, select.POLLIN)
    is_asked = stop_requested()
    while not is_asked and (left_s := end_s - time.monotonic()) > 0:
        came = poll.poll(1000 * min(_POLL_S, left_s))
        numbers = os.read(signals, 512) if came else b""
        is_asked = bool({*_SIGNALS} & {*numbers, *signal.sigpending()})
    if is_asked:
        time.sleep(max(0.0, min(ASKED_PATIENCE_S, end_s - time.monotonic())))
    note = late_note(time.monotonic() - start_s, _keepers())
    with suppress(OSError):
        os.write(2, f"slurm-jobs: {note}\n".encode(errors="backslashreplace"))
    with suppress(OSError):
        write_json_atomic(late_path(task_dir, rank), {"note": note})
    os._exit(code)


def late_note(waited_s: float, keepers: str) -> str:
    """Return the sentence for records and logs."""
    return (
        f"its function had returned, and its process was ended {waited_s:.0f} s later: {keepers}. "
        "Join threads, and shut pools down, before the function returns"
    )


def _keepers() -> str:
    """Describe what keeps this process alive, as far as Python can see it."""
    frames = sys._current_frames()  # noqa: SLF001 - the documented access to other threads
    main = threading.main_thread()
    threads = [
        thread for thread in threading.enumerate() if not thread.daemon and thread is not main
    ]
    texts = [_thread_text(thread, frames.get(thread.ident or 0)) for thread in threads]
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        children = (child for child in active_children() if not child.daemon)
        texts += [f"child process `{child.name}` ({child.pid})" for child in children]
    if not texts:
        innermost = frames.get(main.ident or 0)
        texts = [_handler_text(innermost) if innermost else "the interpreter"]
    more = len(texts) - _MOST_NAMED
    text = ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{text} still ran"


def _thread_text(thread: threading.Thread, frame: FrameType | None) -> str:
    target = getattr(thread, "_target", None)  # kept until the target has returned
    name = getattr(target, "__qualname__", None)
    parts = [f"target `{name}`"] if name else [f"class `{type(thread).__qualname__}`"]
    if frame is not None:
        parts.append(f"in {_frame_text(frame)}")
    return f"thread `{thread.name}` ({', '.join(parts)})"


def _handler_text(frame: FrameType) -> str:
    """Return the exit handler in which the main thread is: the outermost remaining frame."""
    outer = frame
    while outer.f_back is not None:
        outer = outer.f_back
    handler = f"exit handler `{outer.f_code.co_name}`"
    return f"{handler}, {_frame_text(frame)}"


def _frame_text(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"


class LateExit:
    """Keeper's check, from outside, of a process that should have ended itself."""

    def __init__(self, task_dir: Path, rank: int, pid: int, asked: list[int]) -> None:
        self._task_dir = task_dir
        self._rank = rank
        self._pid = pid
        self._asked = asked
        self._seen_s: float | None = None
        """Time at which the returned function was first noticed, monotonic."""
        self._asked_s: float | None = None

    def check(self) -> None:
        """End the process if it is late; call it often."""
        now_s = time.monotonic()
        returned = read_returned(self._task_dir, self._rank)
        if returned is None:
            return
        if self._seen_s is None:
            self._seen_s = now_s
        if self._asked and self._asked_s is None:
            self._asked_s = now_s
        end_s = self._seen_s + returned["patience_s"]
        if self._asked_s is not None:
            end_s = min(end_s, self._asked_s + ASKED_PATIENCE_S)
        if now_s < end_s + KEEPER_MARGIN_S:
            return
        if not late_path(self._task_dir, self._rank).exists():
            note = late_note(now_s - self._seen_s, "Python could not end it itself")
            print(f"slurm-jobs: {note}", file=sys.stderr, flush=True)
            with suppress(OSError):
                write_json_atomic(late_path(self._task_dir, self._rank), {"note": note})
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def read_returned(task_dir: Path, rank: int) -> dict[str, Any] | None:
    """Return the recorded outcome of a rank's function; None if it has not returned."""
    with suppress(FileNotFoundError):
        values: dict[str, Any] = read_json(returned_path(task_dir, rank))
        return values
    return None


def late_text(task_dir: Path, rank: int, returned_code: int, code: int) -> str:
    """Return a note on a process whose end differs from its function's outcome; else empty.

    Args:
        task_dir: of the attempt.
        rank: of the process.
        returned_code: exit code of the function.
        code: exit code of the process; negative for a signal.
    """
    if late_path(task_dir, rank).exists():
        return str(read_json(late_path(task_dir, rank))["note"])
    if code == returned_code:
        return ""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    with suppress(ValueError):
        how = signal.Signals(-code).name if code < 0 else how
    return f"its function had returned before its process ended with {how}"
