"""Stop requests to a running stage: a flag that a signal sets.

The handler saves nothing. A stage with several ranks must agree on the flag at a step boundary
before it acts on it (a collective that only one rank enters hangs), save, and raise
`StageStoppedError`. A stage that has measured how long this takes reports it with
`note_stop_time`, and is asked early enough.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType

from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.base.processes.signal_handlers import handle
from slurm_jobs.base.regular_files import read_text

STOP_SIGNAL = signal.SIGUSR2
"""Signal that requests a stop. SIGUSR1 belongs to NCCL's tools; SIGTERM, which a site sends on
preemption, counts too."""
RELAY_SIGNAL = signal.SIGRTMIN + 9
"""Signal by which a rank's keeper passes `STOP_SIGNAL` on to the stage's function alone. Some
clusters send the signals of a step to all its processes. So functions ignore `STOP_SIGNAL`, which
their children inherit, executed programs too: it would end a program or the worker of a pool while
the function wants to finish what they work on."""

_signals_seen: set[int] = set()


def _remember(number: int, _frame: FrameType | None) -> None:
    _signals_seen.add(number)


def install_stop_handler() -> None:
    """Let `RELAY_SIGNAL` and SIGTERM set the flag; call it once, in the main thread."""
    signal.signal(STOP_SIGNAL, signal.SIG_IGN)
    handle(RELAY_SIGNAL, _remember)
    handle(signal.SIGTERM, _remember)
    # The parent blocks them until now, so that none is lost or ends the process during its start.
    held = (STOP_SIGNAL, RELAY_SIGNAL, signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def stop_requested() -> bool:
    """Return whether this process was asked to stop."""
    return bool(_signals_seen)


def end_requested() -> bool:
    """Return whether SIGTERM was among the requests: SIGKILL follows in any case."""
    return signal.SIGTERM in _signals_seen


def note_stop_time(task_dir: Path, stop_s: float) -> None:
    """Record the time from the request to the end of saving; one rank reports for all.

    The supervisor asks at least half as much again before the time limit, if that is earlier than
    `signal_lead_s`.
    """
    write_text_atomic(_stop_time_path(task_dir), f"{stop_s:.3f}\n")


def noted_stop_time_s(task_dir: Path) -> float:
    """Return the last value of `note_stop_time`; 0 if there is none."""
    with suppress(FileNotFoundError):
        return float(read_text(_stop_time_path(task_dir)))
    return 0.0


def _stop_time_path(task_dir: Path) -> Path:
    return task_dir / "stop-time-s"
