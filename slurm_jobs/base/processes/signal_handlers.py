"""Signal handlers of our processes, which their forked children do not keep.

A forked child inherits the handlers of its parent. A handler that only notes a signal would then
keep `Process.terminate()` and `Pool.terminate()` of a stage from ending the child, and the stage
would wait for it until its time limit. So a forked child gets the default actions back before it
runs any code of its own. A handler that the stage installed in place of ours stays.

Python runs these hooks for `os.fork` and for `preexec_fn`, also in libraries. A program that is
executed needs none, because the kernel resets caught signals. A library in C that calls fork(2)
without Python is out of reach.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

Handler = Callable[[int, FrameType | None], object]


class _Fork(threading.local):
    """Fork that this thread is in."""

    mask: set[int | signal.Signals] | None = None
    """Signals that were blocked before it; None outside of a fork, and if there is no handler."""


_installed: dict[int, Handler] = {}
_writing_stacks: dict[int, Any] = {}
"""Handler of such a signal before ours."""
_wakeup_fd: int | None = None
_fork = _Fork()


def handle(number: int, handler: Handler) -> None:
    """Install a handler for this process alone; call it in the main thread."""
    signal.signal(number, handler)
    _installed[number] = handler


@contextmanager
def handling(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Handle signals until the end of the block; then the handlers before it are back."""
    before = [(number, signal.getsignal(number), _installed.get(number)) for number in numbers]
    try:
        for number, _, _ in before:
            handle(number, handler)
        yield
    finally:
        for number, earlier, installed in before:
            signal.signal(number, earlier)
            _installed.pop(number, None)  # a forked child has none
            if installed is not None:
                _installed[number] = installed


def write_stacks_on(number: int, stream: IO[bytes]) -> None:
    """Let this process write its stacks to an open file at each such signal.

    The handler needs no interpreter lock: it also answers if the main thread hangs in a C call.
    It is gone before the process is, and a late signal is then ignored, because `faulthandler`
    restores what it has replaced.
    """
    _writing_stacks[number] = signal.signal(number, signal.SIG_IGN)
    faulthandler.register(number, stream, all_threads=True, chain=False)


def wake_by(descriptor: int) -> None:
    """Let each caught signal of this process write its number to a pipe."""
    global _wakeup_fd  # noqa: PLW0603 - a process has one
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    _wakeup_fd = descriptor


def _before_fork() -> None:
    """Block our signals, so that none reaches the child while it still has our handlers."""
    _fork.mask = None
    if _installed:
        _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _installed)


def _after_in_parent() -> None:
    if _fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)
        _fork.mask = None


def _after_in_child() -> None:
    global _wakeup_fd  # noqa: PLW0603 - a process has one
    for number, handler in _installed.items():
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.SIG_DFL)
    _installed.clear()
    for number, earlier in _writing_stacks.items():
        if signal.getsignal(number) == signal.SIG_IGN:  # Python does not know the handler in C
            faulthandler.unregister(number)
            signal.signal(number, earlier)
    _writing_stacks.clear()
    if _wakeup_fd is not None:
        current = signal.set_wakeup_fd(-1)
        if current != _wakeup_fd:
            signal.set_wakeup_fd(current)
        _wakeup_fd = None
    _after_in_parent()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
