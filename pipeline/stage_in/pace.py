"""Pace of the copies of a node, so that they leave a shared file system to others."""

from __future__ import annotations

import fcntl
import struct
import time
from collections.abc import Callable
from pathlib import Path

_MOMENT = struct.Struct("<d")
_MOST_WAIT_S = 60.0
"""A later slot is from before the machine's last boot, when its clock started again."""
_LOOK_S = 0.2
_BLOCK_S = 0.25
_BLOCK_BYTES = 1 << 18
"""Measured against `cp` (ext4, Linux 6.18): 128 and 256 KiB cost the same, 64 KiB a fifth more.
With 1 MiB half of the copies took more than three times as much CPU: such large writes request
page cache in large pieces, which the kernel may have to search for."""


class Pace:
    """Limits the read rate on a node, over all processes of one user and their threads.

    The processes share one number: when the next block may be read, by the clock of the machine.
    Each reserves a slot by moving that time on by the cost of its block, and waits until its slot.
    """

    def __init__(self, path: Path, max_bytes_per_s: float | None) -> None:
        """Use `path`, the file that the node's processes share; created if missing."""
        self._path = path
        self._rate = max_bytes_per_s

    @property
    def block_bytes(self) -> int:
        """Bytes to read at a time, so that no slot takes long."""
        if self._rate is None:
            return _BLOCK_BYTES
        return max(4096, min(_BLOCK_BYTES, int(self._rate * _BLOCK_S)))

    def wait(self, num_bytes: int, check_stop: Callable[[], None]) -> None:
        """Wait until `num_bytes` may be read; `check_stop` is called meanwhile and may raise."""
        check_stop()
        if self._rate is None:
            return
        now_s = time.monotonic()
        with self._path.open("a+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(0)
            content = stream.read(_MOMENT.size)
            next_s = _MOMENT.unpack(content)[0] if len(content) == _MOMENT.size else now_s
            slot_s = max(now_s, next_s) if next_s - now_s < _MOST_WAIT_S else now_s
            stream.truncate(0)
            stream.write(_MOMENT.pack(slot_s + num_bytes / self._rate))
        while (left_s := slot_s - time.monotonic()) > 0:
            check_stop()
            time.sleep(min(left_s, _LOOK_S))
