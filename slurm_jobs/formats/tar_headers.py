"""Headers of tar files, by the library `tarfile`, but with an error where it would silently end."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

BLOCK = 512
"""Bytes of a header; members begin at multiples of it."""
_MAX_EXTRA_BYTES = 16 * 1024 * 1024
"""Limit of a header that describes the next member; longer ones are garbage."""


class BrokenArchiveError(ValueError):
    """An archive is truncated, damaged, or of a kind that does not allow access in place."""


class TarHeaders:
    """Headers of an open tar, read one by one at any position."""

    def __init__(self, stream: IO[bytes], num_bytes: int) -> None:
        self._stream = stream
        self._num_bytes = num_bytes
        self._archive: tarfile.TarFile | None = None
        self.has_global_headers = False
        """True if pax values were read that apply to all further members."""

    def read(self, position: int, header: bytes) -> tuple[tarfile.TarInfo, int]:
        """Return the member that is described from `position` on, and where the next begins.

        Raises:
            BrokenArchiveError: it is damaged or truncated.
        """
        try:
            if header[156] in b"xgXLK":
                extra_bytes = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
                if extra_bytes > _MAX_EXTRA_BYTES:
                    message = f"a header of {extra_bytes} bytes at byte {position}"
                    raise BrokenArchiveError(message)
            if self._archive is None:
                self._stream.seek(0)
                self._archive = tarfile.TarFile(
                    fileobj=self._stream, encoding="utf-8", errors="surrogateescape"
                )
            archive = self._archive
            archive.offset = self._stream.seek(position)
            info = tarfile.TarInfo.fromtarfile(archive)
        except BrokenArchiveError:  # a ValueError, but its message is complete
            raise
        except (tarfile.TarError, ArithmeticError, RecursionError, ValueError) as error:
            reached_end = self._stream.tell() >= self._num_bytes
            # raised for a complete header with wrong content, which may be the file's last
            is_invalid = isinstance(error, tarfile.InvalidHeaderError)  # type: ignore[attr-defined]  # typeshed lacks it
            if reached_end and not is_invalid:
                raise BrokenArchiveError(cut_short(self._num_bytes)) from error
            message = f"{no_header(position)} ({error})"
            raise BrokenArchiveError(message) from error
        self.has_global_headers = bool(archive.pax_headers.keys() - {"comment"})
        return info, archive.offset


def tar_members(stream: IO[bytes], num_bytes: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar in its order; the stream may be moved in between.

    Raises:
        BrokenArchiveError: it is damaged, truncated, or not a tar.
    """
    headers = TarHeaders(stream, num_bytes)
    position = 0
    while True:
        stream.seek(position)
        header = stream.read(BLOCK)
        if len(header) < BLOCK:
            message = f"truncated: it ends at byte {num_bytes}, without an end mark; copy it again"
            raise BrokenArchiveError(message)
        if not any(header):
            return
        info, position = headers.read(position, header)
        if position > num_bytes:
            message = f"{cut_short(num_bytes)}; copy it again"
            raise BrokenArchiveError(message)
        yield info


def cut_short(num_bytes: int) -> str:
    """Report that a tar ends within a member."""
    return f"truncated: it ends at byte {num_bytes}, within a member"


def no_header(position: int) -> str:
    """Report that no member begins where one should."""
    return f"no tar header at byte {position}"
