"""How a running stage learns that it should stop: a flag, set by a signal, read at leisure.

Nothing is saved inside the handler. A stage with several ranks must agree on
the flag at a step boundary before it acts on it (a collective that only one
rank enters hangs), save, and raise `StageStoppedError`. A stage that has
measured how long this takes says so with `note_stop_time`, and is asked early
enough.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType

from slurm_jobs.common.files import write_text_atomic

STOP_SIGNAL = signal.SIGUSR2
"""SIGUSR1 belongs to NCCL's tools; SIGTERM is what a site sends on preemption, and counts too."""

_signals_seen: set[int] = set()


def _remember(number: int, _frame: FrameType | None) -> None:
    _signals_seen.add(number)


def install_stop_handler() -> None:
    """Let `STOP_SIGNAL` and SIGTERM set the flag. Call once, in the main thread."""
    signal.signal(STOP_SIGNAL, _remember)
    signal.signal(signal.SIGTERM, _remember)
    # The parent blocks them until now, so that none is lost, or ends the process, while it starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (STOP_SIGNAL, signal.SIGTERM, signal.SIGINT))


def stop_requested() -> bool:
    """Whether this process was asked to stop."""
    return bool(_signals_seen)


def end_requested() -> bool:
    """Whether SIGTERM was among the requests: SIGKILL follows, whatever is left to do."""
    return signal.SIGTERM in _signals_seen


def note_stop_time(task_dir: Path, stop_s: float) -> None:
    """Say how long it takes from the request to the end of saving; one rank speaks for all.

    The supervisor asks at least half as much again before the time limit, where that is earlier
    than `signal_lead_s`.

    Args:
        task_dir: of the stage's context.
        stop_s: seconds.
    """
    write_text_atomic(_stop_time_path(task_dir), f"{stop_s:.3f}\n")


def noted_stop_time_s(task_dir: Path) -> float:
    """What `note_stop_time` said last; 0 before it did."""
    with suppress(FileNotFoundError):
        return float(_stop_time_path(task_dir).read_text())
    return 0.0


def _stop_time_path(task_dir: Path) -> Path:
    return task_dir / "stop-time-s"
