"""What tells one state of a file from another without reading it, and files kept by it.

An index of a manifest or an archive is made once and read by the slices that
come later: it lies in the stage's own folder (that of the data may be read-only),
under a name that depends on the path, size and times of what it describes. The
facts only say which index to look at. What is read by it is compared with
checksums in it, so an index that is wrong is noticed, and then removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from slurm_jobs.common.files import create_once, make_private_dir


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """A file at one moment."""

    path: str
    num_bytes: int
    mtime_ns: int
    ctime_ns: int
    """Moves with every change, and no program can set it back."""


def facts_of(path: Path, fd: int | None = None) -> FileFacts:
    """The facts of what lies at `path`, or of the open file `fd` that was found there.

    Raises:
        OSError: there is nothing, or it cannot be asked.
    """
    found = path.stat() if fd is None else os.fstat(fd)
    return FileFacts(
        path=str(path),
        num_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
    )


_CHECK_BYTES = 8


def _check_of(data: bytes) -> bytes:
    return xxhash.xxh3_64_digest(data)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptFile:
    """Where an index of certain files is kept; nowhere without a folder."""

    path: Path | None

    def load_checked(self) -> bytes | None:
        """What `save_checked` kept; None if nothing was. What is damaged is removed."""
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
        """Keep `data` behind its checksum, unless another task was first."""
        self.save(_check_of(data) + data)

    def save(self, data: bytes) -> None:
        """Keep `data`, unless another task was first.

        What is there is never replaced: on NFS, who has mapped it would lose it.
        """
        if self.path is not None:
            make_private_dir(self.path.parent)
            create_once(self.path, data)

    def remove(self) -> None:
        """Forget what was kept, because it is wrong."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def kept_file(
    folder: Path | None, kind: str, facts: Iterable[FileFacts], *, about: str = ""
) -> KeptFile:
    """Where to keep what follows from these files and from `about`; `kind` begins its name."""
    if folder is None:
        return KeptFile(path=None)
    digest = xxhash.xxh3_128(about.encode())
    for fact in facts:
        words = f"\0{fact.path}\0{fact.num_bytes}\0{fact.mtime_ns}\0{fact.ctime_ns}"
        digest.update(words.encode("utf-8", "surrogateescape"))
    return KeptFile(path=folder / f"{kind}-{digest.hexdigest()}")
