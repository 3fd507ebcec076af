"""Opens a file that a user named, and does not wait where what lies there is none."""

from __future__ import annotations

import os
from pathlib import Path


def open_at_once(path: Path) -> int:
    """A descriptor to read from; of a pipe too, to which nobody need write.

    A file on which another program holds a lease (file servers do, for their clients) answers
    nobody at once: that is waited for, a moment as a rule and 45 s at most (fcntl(2), F_SETLEASE).

    Raises:
        OSError, ValueError: as `os.open`; ENXIO is a socket, or a device without a driver.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:
        return os.open(path, flags)
