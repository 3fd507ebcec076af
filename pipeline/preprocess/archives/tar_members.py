"""Walk over the raw headers of a tar: ustar, GNU and pax, the last two with long names.

Python's `tarfile` creates an object per member and reads 30 thousand a second; an index needs
only names and locations. The format: POSIX.1-2024 (pax), and "GNU tar: Basic Tar Format".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xxhash

from pipeline.preprocess.archives.member_table import (
    BrokenArchiveError,
    FoundMember,
    Kind,
    Member,
)

BLOCK = 512
_NUM_CHECKED_AT_ONCE = 1024
"""Headers whose checksums are compared at once; Python alone would need 3 us for each."""
_FAR_BYTES, _NEAR_BYTES = 4096, 256 * 1024
"""Bytes to read at a header if headers are far apart, and if they are close."""

_LARGEST = 2**63 - 1
"""Limit of the numbers in a header: file systems have no larger ones."""

_MAX_EXTRA_BYTES = 16 * 1024 * 1024
"""Limit of a header that describes the next member; longer ones are garbage."""

_WITHOUT_DATA = {
    b"1": Kind.OTHER,  # a hard link
    b"2": Kind.SYMBOLIC_LINK,
    b"3": Kind.OTHER,  # a device
    b"4": Kind.OTHER,
    b"5": Kind.FOLDER,
    b"6": Kind.OTHER,  # a pipe
}
_OCTAL = re.compile(rb"[0-7]+")
_FILES = frozenset({b"0", b"\0", b"7"})
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


@dataclass(slots=True)
class _Extra:
    """Values from headers before a member that describe it."""

    pax: dict[bytes, bytes] = field(default_factory=dict)
    long_name: bytes | None = None
    long_link: bytes | None = None


class _Window:
    """Blocks of an open file, read ahead while headers are close together."""

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._fd = fd
        self._num_bytes = num_bytes
        self._start = 0
        self._data = b""

    def read(self, offset: int, length: int = BLOCK) -> bytes:
        at = offset - self._start
        if not 0 <= at <= len(self._data) - length:
            gap = at - len(self._data)
            ahead = _NEAR_BYTES if 0 <= gap < 4 * _FAR_BYTES else _FAR_BYTES
            self._data = read_at(self._fd, offset, max(length, ahead))
            self._start, at = offset, 0
        found = self._data[at : at + length]
        if len(found) < length:
            raise BrokenArchiveError(_cut_short(self._num_bytes))
        return found


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Up to `length` bytes at `offset`; fewer at the end of the file. For any number of threads."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    pieces = [data]
    missing = length - len(data)
    while missing and (data := os.pread(fd, missing, offset + length - missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


class TarWalk:
    """Members of the tar in an open file, in order.

    Iterating raises BrokenArchiveError if the archive is truncated or not a tar.
    """

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._window = _Window(fd, num_bytes)
        self._num_bytes = num_bytes
        self._global_pax: dict[bytes, bytes] = {}
        self.has_end = False
        """After the walk: True if an empty block marks the end of the archive."""

    def __iter__(self) -> Iterator[FoundMember]:
        found: list[FoundMember] = []
        headers: list[bytes] = []
        for header, item in self._headers():
            headers.append(header)
            if item is not None:
                found.append(item)
            if len(headers) == _NUM_CHECKED_AT_ONCE:
                _check_sums(headers)
                yield from found
                found, headers = [], []
        _check_sums(headers)
        yield from found

    def _headers(self) -> Iterator[tuple[bytes, FoundMember | None]]:
        """Yield each header with its member, or None if it describes the next one."""
        position, extra = 0, _Extra()
        if not self._num_bytes:
            message = "the file is empty"
            raise BrokenArchiveError(message)
        while position < self._num_bytes:
            header = self._window.read(position)
            if not header[0] and not any(header):
                self.has_end = True
                return
            kind = header[156:157]
            size = _number(header[124:136], position)
            start = position + BLOCK
            if kind in b"xgXLK":
                if size > _MAX_EXTRA_BYTES:
                    message = f"a header of {size} bytes at byte {position}"
                    raise BrokenArchiveError(message)
                body = self._window.read(start, size)
                self._note(kind, body, extra)
                yield header, None
                position = start + _padded(size)
                continue
            pax = {**self._global_pax, **extra.pax}
            if b"size" in pax and kind not in _WITHOUT_DATA:
                size = _decimal(pax[b"size"], position)
            if kind == b"S":
                start = self._after_sparse_map(header, start)
            end = start + (0 if kind in _WITHOUT_DATA else _padded(size))
            if end > self._num_bytes:
                raise BrokenArchiveError(_cut_short(self._num_bytes))
            yield header, _member(header, kind, start=start, size=size, pax=pax, extra=extra)
            position, extra = end, _Extra()
        # after a header that describes the next one
        if position > self._num_bytes or extra != _Extra():
            raise BrokenArchiveError(_cut_short(self._num_bytes))

    def _note(self, kind: bytes, body: bytes, extra: _Extra) -> None:
        """Store the values of a header that has no member."""
        if kind == b"g":
            self._global_pax.update(_pax_records(body))
        elif kind in b"xX":
            extra.pax.update(_pax_records(body))
        elif kind == b"L":
            extra.long_name = body.split(b"\0", 1)[0]
        else:
            extra.long_link = body.split(b"\0", 1)[0]

    def _after_sparse_map(self, header: bytes, start: int) -> int:
        """Return where the data of a GNU sparse member begin: after further blocks of its map."""
        goes_on = header[482]
        while goes_on:
            goes_on = self._window.read(start)[504]
            start += BLOCK
        return start


def _member(
    header: bytes, kind: bytes, *, start: int, size: int, pax: dict[bytes, bytes], extra: _Extra
) -> FoundMember:
    name = pax.get(b"GNU.sparse.name") or pax.get(b"path") or extra.long_name
    if name is None:
        name = header[:100].split(b"\0", 1)[0]
        prefix = header[345:500].split(b"\0", 1)[0]
        if prefix and header[257:263] == b"ustar\0":  # GNU's own format has times there
            name = prefix + b"/" + name
    found = _WITHOUT_DATA.get(kind)
    if found is None:
        is_sparse = kind == b"S" or any(key.startswith(b"GNU.sparse.") for key in pax)
        is_file = kind in _FILES and not name.endswith(b"/")
        found = Kind.SPARSE if is_sparse else Kind.FILE if is_file else Kind.OTHER
        # a folder in old archives without a type for it
        if kind == b"\0" and name.endswith(b"/"):
            found = Kind.FOLDER
    link = b""
    if kind == b"1":
        link = pax.get(b"linkpath") or extra.long_link or header[157:257].split(b"\0", 1)[0]
    check = xxhash.xxh3_64_intdigest(header, seed=size) if found is Kind.FILE else 0
    member = Member(kind=found, offset=start, stored_bytes=size, num_bytes=size, check=check)
    return FoundMember(name=name, member=member, link_to=link)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // BLOCK) * BLOCK


def _number(field_bytes: bytes, position: int) -> int:
    """Parse a number of a header: octal, or in base 256 if it is too large."""
    try:
        if field_bytes[0] == 0x80:
            value = int.from_bytes(field_bytes[1:], "big")
        else:
            value = int(field_bytes.strip(b" \0") or b"0", 8)
    except ValueError:
        value = -1
    if not 0 <= value <= _LARGEST:
        message = f"no tar header at byte {position}"
        raise BrokenArchiveError(message)
    return value


def _decimal(text: bytes, position: int) -> int:
    if not text.isdigit():
        message = f"a pax header before byte {position} has a size that is not a number"
        raise BrokenArchiveError(message)
    return int(text)


def _pax_records(body: bytes) -> dict[bytes, bytes]:
    """Parse the records `LENGTH KEY=VALUE` of a pax header, each ended by a line break."""
    records = {}
    position = 0
    while position < len(body) and body[position]:
        length_text, space, _ = body[position : position + 20].partition(b" ")
        length = int(length_text) if length_text.isdigit() else 0
        record = body[position + len(length_text) + 1 : position + length - 1]
        key, equals, value = record.partition(b"=")
        end = position + length
        if not space or not equals or length <= len(length_text) or end > len(body):
            message = "a pax header holds no records"
            raise BrokenArchiveError(message)
        records[key] = value
        position = end
    return records


def _check_sums(headers: list[bytes]) -> None:
    """Compare the headers with their checksums."""
    if not headers:
        return
    blocks = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, BLOCK)
    sums = blocks.sum(axis=1, dtype=np.int64) - blocks[:, 148:156].sum(axis=1, dtype=np.int64)
    for header, total in zip(headers, (sums + 8 * ord(" ")).tolist(), strict=True):
        stated = header[148:156].split(b"\0", 1)[0].strip()
        is_right = _OCTAL.fullmatch(stated) and (
            int(stated, 8) == total or int(stated, 8) == _signed(header)
        )
        if not is_right:
            message = "a header does not match its checksum"
            raise BrokenArchiveError(message)


def _signed(header: bytes) -> int:
    """Return the checksum of old writers, over signed bytes."""
    blocks = np.frombuffer(header[:148] + b" " * 8 + header[156:], np.int8)
    return int(blocks.sum(dtype=np.int64))


def _cut_short(num_bytes: int) -> str:
    return f"truncated: it ends at byte {num_bytes}, within a member"


def compression_of(fd: int) -> str:
    """Return the compression that the first bytes of an open file indicate; empty if none."""
    head = read_at(fd, 0, 8)
    return next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), "")
