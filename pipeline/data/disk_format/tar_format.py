"""Tar format of parts and shards: equal bytes for equal content, read in place.

A sample is a run of members `KEY.suffix`. Headers have constant time, owner and mode, so the
bytes of a sample are a function of its content. A shard is the concatenated bytes of its
samples and two empty blocks: copying a range moves a sample from part to shard.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

BLOCK = 512


END_OF_ARCHIVE = bytes(2 * BLOCK)


_HEADER = struct.Struct("100s 24x 12s")
"""Name and size; the only fields of a header that are read."""


class Member(NamedTuple):  # created for each member, in a third of a dataclass's time
    """One file within a tar."""

    name: str
    start: int
    """Offset of the member's first byte in the buffer."""
    num_bytes: int


def padded(num_bytes: int) -> int:
    """Return the bytes of a member's content, rounded up to whole blocks."""
    return -(-num_bytes // BLOCK) * BLOCK


def member_bytes(name: str, data: bytes) -> bytes:
    """Return header, content and padding of one member."""
    header = tarfile.TarInfo(name)  # mtime, uid and gid are 0, mode is 0644
    header.size = len(data)
    return header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(padded(len(data)) - len(data))


def sample_bytes(key: str, members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return all members of a sample, given as (suffix, content)."""
    return b"".join(member_bytes(f"{key}.{suffix}", data) for suffix, data in members)


def scan_members(buffer: memoryview) -> Iterator[Member]:
    """Yield the members in `buffer`, up to its end or the end of the archive.

    Raises:
        ValueError: the buffer is truncated within a member, or is not a tar.
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


def with_key(data: bytes, key: str) -> bytes:
    """Return the bytes of a sample with another key; their number stays the same."""
    members = []
    for member in scan_members(memoryview(data)):
        _, _, suffix = member.name.partition(".")
        members.append((suffix, data[member.start : member.start + member.num_bytes]))
    return sample_bytes(key, members)
