"""The tar format of parts and shards: members of equal bytes for equal content, read in place.

A sample is a run of members `KEY.suffix`. Headers carry no time, owner or
mode of their own, so the bytes of a sample are a function of its content, and
a shard is nothing but the samples' bytes one after the other and two empty
blocks: samples are moved from part to shard by copying a range.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)

_HEADER = struct.Struct("100s 24x 12s")
"""Name and size; all that is looked at of a header."""


class Member(NamedTuple):  # made in a third of a data class's time, for each member that is read
    """One file within a tar."""

    name: str
    start: int
    """Of the member's first byte, counted from the start of the buffer."""
    num_bytes: int


def padded(num_bytes: int) -> int:
    """The bytes that a member's content takes, whole blocks."""
    return -(-num_bytes // BLOCK) * BLOCK


def member_bytes(name: str, data: bytes) -> bytes:
    """Header, content and padding of one member."""
    header = tarfile.TarInfo(name)  # mtime, uid and gid are 0, mode is 0644
    header.size = len(data)
    return header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(padded(len(data)) - len(data))


def sample_bytes(key: str, members: Iterable[tuple[str, bytes]]) -> bytes:
    """All members of a sample, given as (suffix, content)."""
    return b"".join(member_bytes(f"{key}.{suffix}", data) for suffix, data in members)


def scan_members(buffer: memoryview) -> Iterator[Member]:
    """The members that lie in `buffer`, up to its end or the end of the archive.

    Raises:
        ValueError: the buffer is cut short within a member, or holds no tar.
    """
    position, end = 0, len(buffer)
    while position + BLOCK <= end:
        name, size = _HEADER.unpack_from(buffer, position)
        if not name[0]:
            return
        try:
            num_bytes = int(size.rstrip(b" \0"), 8)
        except ValueError as error:
            message = f"no tar header at byte {position}"
            raise ValueError(message) from error
        start = position + BLOCK
        if num_bytes < 0:  # or the same header would be read again and again
            message = f"a member of {num_bytes} bytes at byte {position}"
            raise ValueError(message)
        if start + num_bytes > end:
            message = f"cut short at byte {end}, within a member of {num_bytes} bytes"
            raise ValueError(message)
        yield Member(name.rstrip(b"\0").decode(), start, num_bytes)
        position = start + padded(num_bytes)
