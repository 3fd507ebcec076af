"""Opens a file that a user named, without blocking on special files."""

from __future__ import annotations

import os
from pathlib import Path


def open_at_once(path: Path) -> int:
    """Return a descriptor for reading; also of a pipe that has no writer.

    A file on which another program holds a lease (as file servers do for their clients) blocks
    every opener: wait for it, usually a moment and 45 s at most (fcntl(2), F_SETLEASE).

    Raises:
        OSError, ValueError: as in `os.open`; ENXIO is a socket, or a device without a driver.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:
        return os.open(path, flags)
