"""Members of a zip, from its central directory, and their bytes.

`zipfile` reads the directory (and handles Zip64 and data before and after the archive). The
members are read in place by number, in any number of threads; an open `ZipFile` would serve
threads one at a time.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from pipeline.preprocess.archives.member_table import (
    BrokenArchiveError,
    FoundMember,
    Kind,
    Member,
)
from pipeline.preprocess.archives.tar_members import read_at

_LOCAL = struct.Struct("<4s5H3I2H")
"""Struct of a local header; its last two numbers are the lengths of the name and the extra
fields."""
_LOCAL_MAGIC = b"PK\x03\x04"
_IS_ENCRYPTED, _IS_UTF8 = 0x1, 0x800
_UNIX = 3
_MOST_INFLATED = 1032
"""Greatest expansion factor of deflate (zlib's technical details)."""
_ROOM_FOR_NAMES = 512
"""Bytes read beyond a member's local header and data, so that one read usually suffices."""


_BROKEN = (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OverflowError)
"""Errors of `zipfile` on a malformed directory."""


class DamagedMemberError(ValueError):
    """The bytes of one member do not match its checksum."""


class ZipWalk:
    """Members of the zip in an open file.

    Iterating raises BrokenArchiveError if the directory at its end is missing or broken.
    """

    has_end = True
    """A zip without its end is broken."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[FoundMember]:
        try:
            with zipfile.ZipFile(self._stream) as archive:
                infos = archive.infolist()
            num_bytes = self._stream.seek(0, os.SEEK_END)
        except _BROKEN as error:
            message = f"truncated or not a zip ({error})"
            raise BrokenArchiveError(message) from error
        for info in infos:
            if not 0 <= info.header_offset <= num_bytes - info.compress_size:
                message = "its directory has a location before its first byte, or after its last"
                raise BrokenArchiveError(message)
            yield from _found(info)


def _found(info: zipfile.ZipInfo) -> Iterator[FoundMember]:
    member = Member(
        kind=_kind(info),
        offset=info.header_offset,
        stored_bytes=info.compress_size,
        num_bytes=info.file_size,
        check=info.CRC,
    )
    yield FoundMember(name=info.filename.encode("utf-8", "surrogateescape"), member=member)
    if not info.flag_bits & _IS_UTF8 and not info.filename.isascii():
        # The format says code page 437; most packers write the system's bytes, which is UTF-8.
        yield FoundMember(name=info.filename.encode("cp437", "replace"), member=member)


def _kind(info: zipfile.ZipInfo) -> Kind:
    if info.filename.endswith("/"):  # `is_dir` fails for an empty name
        return Kind.FOLDER
    if info.create_system == _UNIX and stat.S_ISLNK(info.external_attr >> 16):
        return Kind.SYMBOLIC_LINK
    if info.flag_bits & _IS_ENCRYPTED:
        return Kind.ENCRYPTED
    methods = {zipfile.ZIP_STORED: Kind.FILE, zipfile.ZIP_DEFLATED: Kind.DEFLATED}
    return methods.get(info.compress_type, Kind.UNKNOWN_METHOD)


def read_zip_member(fd: int, member: Member) -> bytes:
    """Return the content of a member of kind FILE or DEFLATED; for any number of threads.

    Raises:
        DamagedMemberError: its bytes do not match the directory's checksum.
        BrokenArchiveError: no member at the directory's location.
        OSError: the file system failed.
    """
    stored_bytes = member.stored_bytes
    data = read_at(fd, member.offset, _LOCAL.size + _ROOM_FOR_NAMES + stored_bytes)
    if len(data) < _LOCAL.size or data[:4] != _LOCAL_MAGIC:
        message = f"no member at byte {member.offset}, where its directory has one"
        raise BrokenArchiveError(message)
    *_, name_bytes, extra_bytes = _LOCAL.unpack_from(data)
    start = _LOCAL.size + name_bytes + extra_bytes
    if start + stored_bytes > len(data):
        data, start = read_at(fd, member.offset + start, stored_bytes), 0
    packed = data[start : start + stored_bytes]
    if len(packed) < stored_bytes:
        message = "truncated within a member"
        raise BrokenArchiveError(message)
    is_deflated = member.kind is Kind.DEFLATED
    plain = _inflate(packed, member.num_bytes) if is_deflated else packed
    if len(plain) != member.num_bytes or zlib.crc32(plain) != member.check:
        message = "its bytes do not match the checksum (CRC-32) of the archive"
        raise DamagedMemberError(message)
    return plain


def _inflate(packed: bytes, num_bytes: int) -> bytes:
    """Inflate the bytes of a file, to at most one byte more than expected."""
    try:
        most = min(num_bytes, _MOST_INFLATED * len(packed))
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most + 1)
    except zlib.error as error:
        message = f"its bytes cannot be inflated ({error})"
        raise DamagedMemberError(message) from error
