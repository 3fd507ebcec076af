"""Opened shard of a data set: memory-mapped, or read in pieces."""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path

import numpy as np

from pipeline.data.disk_format.dataset_info import ShardInfo
from pipeline.data.shard_reading.local_disks import is_on_this_machine
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.regular_files import open_regular

log = logging.getLogger(__name__)


class MappedShard:
    """Shard in memory; the kernel loads the pages that are read."""

    def __init__(self, path: Path, expected: ShardInfo) -> None:
        """Map it.

        Raises:
            OSError: it cannot be opened or mapped.
            StageError: its size is wrong.
        """
        self.path = path
        with open_regular(path, buffering=0) as stream:
            status = os.fstat(stream.fileno())
            check_size(path, status.st_size, expected)
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._inode = status.st_ino
        self.view = memoryview(mapped)
        self.data = np.frombuffer(mapped, dtype=np.uint8)
        """uint8 [num_bytes]."""
        self.words = self.data[: len(self.data) // 4 * 4].view("<i4")
        """int32 [num_bytes // 4]."""

    def read(self, start: int, num_bytes: int) -> memoryview:
        """Return a view, without a copy; a reference to it keeps the shard mapped."""
        return self.view[start : start + num_bytes]

    def unlink(self) -> None:
        """Delete the file if it is still the mapped one; existing maps stay valid."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError as error:
            log.warning("%s is left there: %s", self.path, error)


class StreamedShard:
    """Shard that is read in pieces."""

    def __init__(self, path: Path, expected: ShardInfo) -> None:
        # Closed by its last reference, which may be after `_Recent` dropped it.
        self._stream = open_regular(path, buffering=0)
        check_size(path, os.fstat(self._stream.fileno()).st_size, expected)

    def read(self, start: int, num_bytes: int) -> memoryview:
        """Return a copy.

        Raises:
            OSError: the file ends too early.
        """
        pieces = []
        while num_bytes:
            piece = os.pread(self._stream.fileno(), num_bytes, start)
            if not piece:
                message = "it ends too early"
                raise OSError(message)
            pieces.append(piece)
            start, num_bytes = start + len(piece), num_bytes - len(piece)
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def open_shared(folder: Path, expected: ShardInfo) -> MappedShard | StreamedShard:
    """Map the shard where that is safe.

    Raises:
        StageError: it is missing or its size is wrong.
    """
    path = folder / expected.name
    try:
        is_safe = is_on_this_machine(path)
        return MappedShard(path, expected) if is_safe else StreamedShard(path, expected)
    except OSError as error:
        message = f"{path}: the shard cannot be opened: {error}"
        raise StageError(message) from error


def check_size(path: Path, num_bytes: int, expected: ShardInfo) -> None:
    """Check the size of a shard's file.

    Raises:
        StageError: it has another size than expected.
    """
    if num_bytes != expected.num_bytes:
        message = f"{path}: {num_bytes} bytes, expected {expected.num_bytes}; it is damaged"
        raise StageError(message)
