"""Groups of members of a tar that have one key, in the order of the tar."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.file_signatures import HEAD_BYTES, signature_of
from slurm_jobs.formats.tar_headers import BLOCK, BrokenArchiveError, tar_members


@dataclass(frozen=True, kw_only=True, slots=True)
class TarGroup:
    """Members of one key."""

    key: str
    """Name of the members up to the first dot, with the folder."""
    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    """Members by extension: all after that dot, in small letters."""
    repeated: list[str] = field(default_factory=list)
    """Names of members whose extension another member has, too."""


@contextmanager
def open_tar(path: Path) -> Iterator[OpenTar]:
    """Open a tar.

    Raises:
        OSError: it does not exist, or cannot be read.
    """
    with open_regular(path) as stream:
        yield OpenTar(path, stream)


class OpenTar:
    """An open tar, whose members are read in any order."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream
        self._num_bytes = stream.seek(0, os.SEEK_END)

    def groups(self, excluded: Collection[str] = ()) -> Iterator[TarGroup]:
        """Yield the groups. Members without an extension and hidden ones belong to none.

        Args:
            excluded: groups that are left out, as in `TableFiles`.

        Raises:
            BrokenArchiveError: it is damaged, truncated, compressed, or not sorted by key.
        """
        self._check_start()
        group: TarGroup | None = None
        keys: set[str] = set()
        for info in tar_members(self._stream, self._num_bytes):
            folder, slash, name = info.name.removeprefix("./").rpartition("/")
            stem, dot, extension = name.partition(".")
            if info.isdir() or not stem or not dot:
                continue
            key = f"{folder}{slash}{stem}"
            if group is None or key != group.key:
                if group is not None and f"{self._path}/{group.key}" not in excluded:
                    yield group
                if key in keys:
                    message = (
                        f"the members of the key {key} do not follow each other; pack the files "
                        "again, sorted by name: `tar --sort=name -cf NEW.tar FOLDER`"
                    )
                    raise BrokenArchiveError(message)
                keys.add(key)
                group = TarGroup(key=key)
            if extension.lower() in group.members:
                group.repeated.append(info.name)
            group.members[extension.lower()] = info
        if group is not None and f"{self._path}/{group.key}" not in excluded:
            yield group

    def _check_start(self) -> None:
        self._stream.seek(0)
        signature = signature_of(self._stream.read(HEAD_BYTES))
        if signature is not None and signature.group == "compressed":
            message = (
                f"it is compressed ({signature.name}), and tars are read only as they are; "
                "decompress it"
            )
            raise BrokenArchiveError(message)

    def check_end(self) -> None:
        """Check without reading the headers that the tar ends as a complete one does.

        Raises:
            BrokenArchiveError: its last block is not blank, so a copy of it was cut short.
        """
        self._stream.seek(max(0, self._num_bytes - BLOCK))
        last = self._stream.read(BLOCK)
        if self._num_bytes % BLOCK or not last or any(last):
            message = (
                f"truncated: it ends at byte {self._num_bytes}, without an end mark; copy it again"
            )
            raise BrokenArchiveError(message)

    def read(self, member: tarfile.TarInfo) -> bytes:
        """Return the content of a member.

        Raises:
            BrokenArchiveError: the tar has become shorter.
        """
        self._stream.seek(member.offset_data)
        data = self._stream.read(member.size)
        if len(data) < member.size:
            message = f"truncated within {member.name}"
            raise BrokenArchiveError(message)
        return data
