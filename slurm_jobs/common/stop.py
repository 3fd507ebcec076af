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
