"""Facts that identify one state of a file without reading it, and index files keyed by them.

An index of a manifest or an archive is built once and reused by later slices. It is stored in
the stage's folder (the data's folder may be read-only), under a name that depends on the path,
size and times of the described files. The facts only select the index. Data read through it is
compared with checksums in it, so a wrong index is detected, and then removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from slurm_jobs.base.files import create_once, make_private_dir


@dataclass(frozen=True, kw_only=True, slots=True)
class FileState:
    """State of a file at one moment."""

    path: str
    num_bytes: int
    mtime_ns: int
    ctime_ns: int
    """Changes with every modification; no program can reset it."""


def facts_of(path: Path, fd: int | None = None) -> FileState:
    """Return the facts of the file at `path`, or of the open file `fd` from there.

    Raises:
        OSError: it does not exist, or its state cannot be read.
    """
    stat = path.stat() if fd is None else os.fstat(fd)
    return FileState(
        path=str(path),
        num_bytes=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
    )


_CHECK_BYTES = 8


def _check_of(data: bytes) -> bytes:
    return xxhash.xxh3_64_digest(data)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptFile:
    """Location of an index of certain files; without a folder nothing is kept."""

    path: Path | None

    def load_checked(self) -> bytes | None:
        """Return the data of `save_checked`; None if there is none. Damaged data is removed."""
        try:
            found = b"" if self.path is None else self.path.read_bytes()
        except FileNotFoundError:
            return None
        data = found[_CHECK_BYTES:]
        if found[:_CHECK_BYTES] == _check_of(data):
            return data
        self.remove()
        return None

    def save_checked(self, data: bytes) -> None:
        """Store `data` behind its checksum, unless another task was first."""
        self.save(_check_of(data) + data)

    def save(self, data: bytes) -> None:
        """Store `data`, unless another task was first.

        An existing file is never replaced: on NFS, a process that has mapped it would lose it.
        """
        if self.path is not None:
            make_private_dir(self.path.parent)
            create_once(self.path, data)

    def remove(self) -> None:
        """Remove the stored data, because it is wrong."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def kept_file(
    folder: Path | None, kind: str, facts: Iterable[FileState], *, about: str = ""
) -> KeptFile:
    """Return the location of data about these files and `about`; `kind` starts its name."""
    if folder is None:
        return KeptFile(path=None)
    digest = xxhash.xxh3_128(about.encode())
    for fact in facts:
        words = f"\0{fact.path}\0{fact.num_bytes}\0{fact.mtime_ns}\0{fact.ctime_ns}"
        digest.update(words.encode("utf-8", "surrogateescape"))
    return KeptFile(path=folder / f"{kind}-{digest.hexdigest()}")
