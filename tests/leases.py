"""Holds a file so that who opens it waits: an event to kill a process at."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def leased(path: Path) -> Iterator[Callable[[], bool]]:
    """A lease on a file (fcntl(2), F_SETLEASE): who opens it waits until the end, 45 s at most.

    Gives what says whether anybody waits.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        # Whoever waits is told by a signal; the usual one would end this process.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield lambda: fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    finally:
        os.close(fd)
