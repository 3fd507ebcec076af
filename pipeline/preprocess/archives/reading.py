"""Opens archives and reads their members, for all threads of a task.

A few archives stay open. The table of members of each is built once, by the first thread, while
others wait only for that archive, and stored as a file for later slices.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path

import xxhash

from pipeline.preprocess.archives.member_table import (
    BrokenArchiveError,
    CompressedArchiveError,
    Member,
    MemberTable,
    build_table,
    load_table,
)
from pipeline.preprocess.archives.tar_members import BLOCK, TarWalk, compression_of, read_at
from pipeline.preprocess.archives.zip_members import ZipWalk, read_zip_member
from pipeline.preprocess.file_facts import KeptFile, facts_of, kept_file
from pipeline.preprocess.file_opening import open_at_once

_MAX_OPEN = 128


class ArchiveChangedError(OSError):
    """An archive has changed since its table of members was built; a new attempt may read it."""


class Archive:
    """An open tar or zip; any number of threads may read."""

    def __init__(self, path: Path, index_dir: Path | None) -> None:
        """Open it, and build its table or load a stored one.

        Raises:
            BrokenArchiveError: truncated, damaged, compressed as a whole, or not an archive.
            OSError: it does not exist, or the file system failed.
        """
        self._path = path
        self._fd = open_at_once(path)
        weakref.finalize(self, os.close, self._fd)  # a thread may still read an evicted archive
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            message = "it is not a file"
            raise BrokenArchiveError(message)
        self._is_zip = path.suffix.lower() == ".zip"
        self._kept = kept_file(index_dir, "archive", [facts_of(path, self._fd)])
        self._num_bytes = found.st_size
        self.table = self._load_table(found.st_size)

    def _load_table(self, num_bytes: int) -> MemberTable:
        known = _load(self._kept)
        if known is not None:
            return known
        compression = compression_of(self._fd)
        if compression and not self._is_zip:
            message = (
                f"compressed as a whole ({compression}), so that members cannot be read in "
                "place; decompress it and keep the tar"
            )
            raise CompressedArchiveError(message)
        if self._is_zip:
            with io.BufferedReader(_Raw(self._fd, num_bytes), 1 << 20) as stream:
                made = build_table(ZipWalk(stream))
        else:
            made = build_table(TarWalk(self._fd, num_bytes))
        self._kept.save(made.to_bytes())
        return _load(self._kept) or made  # mapped: uses no memory of this task

    def read(self, member: Member) -> bytes:
        """Return the content of a member, which must be of a readable kind.

        Raises:
            DamagedMemberError: a zip member does not match its checksum.
            ArchiveChangedError: the archive has changed since its table was built.
            OSError: the file system failed.
        """
        before, length = (0, member.stored_bytes) if self._is_zip else (BLOCK, member.num_bytes)
        if not before <= member.offset <= self._num_bytes - length:
            found = f"{length} bytes at byte {member.offset} are not within it"
            raise self._changed(found)
        if self._is_zip:
            try:
                return read_zip_member(self._fd, member)
            except BrokenArchiveError as error:
                raise self._changed(str(error)) from error
        data = read_at(self._fd, member.offset - BLOCK, BLOCK + member.num_bytes)
        is_same = xxhash.xxh3_64_intdigest(data[:BLOCK], seed=member.num_bytes) == member.check
        if not is_same or len(data) < BLOCK + member.num_bytes:
            found = f"another header before byte {member.offset}"
            raise self._changed(found)
        return data[BLOCK:]

    def check_table(self) -> None:
        """Verify the table before a row is rejected because of it.

        Raises:
            ArchiveChangedError: it is damaged; the next attempt builds it again.
        """
        if not self.table.is_whole():
            found = "the kept list of them has another checksum"
            raise self._changed(found)

    def _changed(self, found: str) -> ArchiveChangedError:
        self._kept.remove()
        message = f"{self._path}: changed since its members were listed, or damaged ({found})"
        return ArchiveChangedError(message)


def _load(kept: KeptFile) -> MemberTable | None:
    return None if kept.path is None else load_table(kept.path)


class _Raw(io.RawIOBase):
    """Open file as a stream with a separate position; does not close the file."""

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._fd = fd
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        if base + offset < 0:
            message = "a position before the beginning"
            raise ValueError(message)
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = read_at(self._fd, self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class OpenArchives:
    """Archives that a task reads; the least recently used one is evicted."""

    def __init__(self, index_dir: Path | None) -> None:
        self._index_dir = index_dir
        self._lock = threading.Lock()
        self._archives: OrderedDict[Path, Future[Archive]] = OrderedDict()

    def open(self, path: Path) -> Archive:
        """Return the archive at `path`; raises like `Archive`, in each waiting thread."""
        with self._lock:
            future = self._archives.get(path)
            is_first = future is None
            if future is None:
                self._put_away()
                future = self._archives[path] = Future()
            else:
                self._archives.move_to_end(path)
        if is_first:
            self._fill(path, future)
        return future.result()

    def _put_away(self) -> None:
        """Make room for one more; archives that are being opened stay."""
        opened = [path for path, future in self._archives.items() if future.done()]
        for path in opened[: max(0, len(self._archives) + 1 - _MAX_OPEN)]:
            del self._archives[path]

    def _fill(self, path: Path, future: Future[Archive]) -> None:
        try:
            future.set_result(Archive(path, self._index_dir))
        except Exception as error:  # any error must reach the waiting threads
            with self._lock:
                if self._archives.get(path) is future:
                    del self._archives[path]
            future.set_exception(error)
            raise
