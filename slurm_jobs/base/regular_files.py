"""Readers of files that may be anything: they read regular files of a bounded size, and never wait.

A record, a spec or a profile may have been replaced by a pipe without a writer, by a link to
`/dev/zero` or by a sparse file of terabytes. In a folder of runs that several users share, one such
file would otherwise stop everybody's commands.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Literal, overload

MOST_RECORD_BYTES = 64 << 20
"""Most bytes of a record, a spec or a profile. Own choice: a thousand times an ordinary one, and
its values still fit into the memory of a login node."""
MOST_MEASURED_BYTES = 1 << 30
"""Most bytes of a file that grows with the work of a rank, such as its step records. Own choice:
five million steps."""
_BLOCK_BYTES = 1 << 16
_LEASE_PATIENCE_S = 60.0
"""The kernel breaks a lease after 45 s (`/proc/sys/fs/lease-break-time`)."""
_LEASE_POLL_S = 0.05

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


@overload
def open_regular(path: Path, *, buffering: Literal[0]) -> FileIO: ...
@overload
def open_regular(path: Path, *, buffering: Literal[-1] = -1) -> BufferedReader: ...
def open_regular(path: Path, *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file for reading; links to one are followed, because users link run folders.

    Raises:
        OSError: it is no regular file (a folder: IsADirectoryError), or cannot be opened. Its
            `strerror` says what is wrong and what to do.
    """
    return open(descriptor_of(path), "rb", buffering=buffering)


def descriptor_of(path: Path) -> int:
    """Return a descriptor of a regular file, as `open_regular`."""
    opened = open_at_once(path)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            raise _irregular(path, kind, is_folder=stat.S_ISDIR(status.st_mode))
        if status.st_size:
            # Storage that has moved a file to tape refuses to fetch it for a reader that does not
            # wait. Files of the kernel that wait for events (`/proc/kmsg`) have no size.
            os.set_blocking(opened, True)
    except BaseException:
        os.close(opened)
        raise
    return opened


def open_at_once(path: Path) -> int:
    """Return a descriptor for reading of a file of any kind, also of a pipe that has no writer.

    A file on which another program holds a lease (as file servers do for their clients) cannot be
    opened at once: wait for it, usually a moment (fcntl(2), F_SETLEASE).

    Raises:
        OSError: it cannot be opened (ENXIO if it is a socket).
        ValueError: no file can have this name.
    """
    end_s = time.monotonic() + _LEASE_PATIENCE_S
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise
            time.sleep(_LEASE_POLL_S)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise _irregular(path, "a socket, or a device without a driver") from error


def _irregular(path: Path, kind: str, *, is_folder: bool = False) -> OSError:
    what = f"it is {kind}, and only regular files are read: remove it, or restore the file"
    return OSError(errno.EISDIR if is_folder else errno.ENXIO, what, str(path))


def read_bytes(path: Path, *, most_bytes: int = MOST_RECORD_BYTES) -> bytes:
    """Read a regular file as a whole.

    Raises:
        OSError: as in `open_regular`, or the file has more than `most_bytes` (EFBIG).
    """
    with open_regular(path, buffering=0) as stream:
        return rest_of(stream, path, most_bytes=most_bytes)


def read_text(path: Path, *, most_bytes: int = MOST_RECORD_BYTES, errors: str = "strict") -> str:
    """Read a regular file as text in UTF-8, its line ends as they are.

    Raises:
        OSError: as in `read_bytes`.
        UnicodeDecodeError: it has other bytes.
    """
    return read_bytes(path, most_bytes=most_bytes).decode(errors=errors)


def rest_of(stream: IO[bytes], path: Path, *, most_bytes: int) -> bytes:
    """Read an open file to its end, which may move meanwhile.

    Raises:
        OSError: it cannot be read, or has more than `most_bytes` left (EFBIG).
    """
    num_left = max(0, os.fstat(stream.fileno()).st_size - stream.tell())
    blocks: list[bytes] = []
    num_bytes = 0
    # The size is a hint: a file may grow, and files of the kernel have none.
    while num_left <= most_bytes and num_bytes <= most_bytes:
        block = stream.read(_BLOCK_BYTES if blocks else num_left + 1)
        if not block:  # the end, or None of a file that would wait
            return b"".join(blocks)
        blocks.append(block)
        num_bytes += len(block)
    size = f"over {max(num_left, num_bytes) / 2**20:,.0f} MiB"
    what = (
        f"it has {size}, and such a file has at most {most_bytes / 2**20:,.0f} MiB, so it is not "
        "read: restore the file if another has taken its place"
    )
    raise OSError(errno.EFBIG, what, str(path))
