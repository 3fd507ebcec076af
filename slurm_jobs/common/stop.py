"""How a running stage learns that it should stop: a flag, set by a signal, read at leisure.

Nothing is saved inside the handler. A stage with several ranks must agree on
the flag at a step boundary before it acts on it (a collective that only one
rank enters hangs), save, and raise `StageStoppedError`.
"""

from __future__ import annotations

import signal
from types import FrameType

STOP_SIGNAL = signal.SIGUSR2
"""SIGUSR1 belongs to NCCL's tools; SIGTERM is what a site sends on preemption, and counts too."""

_stop_requested = False


def _set_flag(_number: int, _frame: FrameType | None) -> None:
    global _stop_requested  # noqa: PLW0603 - a signal handler has nowhere else to write
    _stop_requested = True


def install_stop_handler() -> None:
    """Let `STOP_SIGNAL` and SIGTERM set the flag. Call once, in the main thread."""
    signal.signal(STOP_SIGNAL, _set_flag)
    signal.signal(signal.SIGTERM, _set_flag)
    # The parent blocks them until now, so that none is lost, or ends the process, while it starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (STOP_SIGNAL, signal.SIGTERM, signal.SIGINT))


def stop_requested() -> bool:
    """Whether this process was asked to stop."""
    return _stop_requested
