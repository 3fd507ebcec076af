"""Archives of images: members of tar and zip files, indexed and read in any order."""

from __future__ import annotations

import io
import mmap
import os
import re
import stat
import struct
import threading
import weakref
import zipfile
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import xxhash

from pipeline.preprocess.manifest_files import KeptFile, facts_of, kept_file, open_at_once

# Locations of an archive's members: a table of numbers, sorted by the hash of the name.
#
# A member takes 56 bytes, whatever the length of its name. The table is written once and
# memory-mapped by its readers, so an archive of ten million members costs a task only the pages
# it reads.


_HEAD = struct.Struct("<16sQQQ")
_MAGIC = b"slurm-jobs-ar-2\0"
_NUM_COLUMNS = 7
_HALF = (1 << 64) - 1


class BrokenArchiveError(ValueError):
    """An archive is truncated, damaged, or of a kind that does not allow access in place."""


class CompressedArchiveError(BrokenArchiveError):
    """It seems intact, but is compressed as a whole."""


class Kind(IntEnum):
    """Kind of a member. Only kinds without an entry in `WHY_UNREADABLE` can be read."""

    FILE = 0
    """Stored uncompressed."""
    FOLDER = 1
    SYMBOLIC_LINK = 2
    SPARSE = 3
    ENCRYPTED = 4
    UNKNOWN_METHOD = 5
    OTHER = 6
    DEFLATED = 7
    """A file, too."""


_KINDS = frozenset(Kind)

WHY_UNREADABLE = {
    Kind.FOLDER: "a folder",
    Kind.SYMBOLIC_LINK: "a symbolic link, which is not followed",
    Kind.SPARSE: "stored as a sparse file",
    Kind.ENCRYPTED: "encrypted",
    Kind.UNKNOWN_METHOD: "compressed by a method other than deflate",
    Kind.OTHER: "not a file",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One entry of an archive."""

    kind: Kind
    offset: int
    """From the file's start: in a tar, the member's first byte; in a zip, its local header."""
    stored_bytes: int
    """Size in the archive."""
    num_bytes: int
    """Size of the file."""
    check: int
    """In a tar xxh3-64 of the 512 bytes before the member, seeded with its `num_bytes`; in a zip
    CRC-32 of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundMember:
    """Member as the walk over an archive yields it."""

    name: bytes
    member: Member
    link_to: bytes = b""
    """Name of the member that has the bytes, if this is a hard link."""


def member_name(name: bytes) -> bytes:
    """Normalise a name for lookup: `./cats/1.jpg` is `cats/1.jpg`; drop a trailing `/`."""
    name = name.rstrip(b"/")
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    return name


class MemberTable:
    """Finds members by name."""

    def __init__(
        self, columns: np.ndarray, *, has_end: bool, stated_xxh3: int | None = None
    ) -> None:
        """`columns` is uint64 [7, num_members], sorted by its first two rows.

        `stated_xxh3` is the checksum in the file that it was mapped from.
        """
        self._columns = columns
        self._stated_xxh3 = stated_xxh3
        self.has_end = has_end
        """True if the archive has an end mark; otherwise it may be truncated."""

    def __len__(self) -> int:
        return self._columns.shape[1]

    def find(self, name: bytes) -> Member | None:
        """Return the member called `name`; of several the last, as when unpacking."""
        high, low = _hash(member_name(name))
        first, second = self._columns[0], self._columns[1]
        start = int(np.searchsorted(first, np.uint64(high), "left"))
        stop = int(np.searchsorted(first, np.uint64(high), "right"))
        for place in range(start, stop):
            if int(second[place]) == low and int(self._columns[2, place]) in _KINDS:
                kind, *others = (int(value) for value in self._columns[2:, place])
                offset, stored_bytes, num_bytes, check = others
                return Member(
                    kind=Kind(kind),
                    offset=offset,
                    stored_bytes=stored_bytes,
                    num_bytes=num_bytes,
                    check=check,
                )
        return None

    def is_whole(self) -> bool:
        """Compare the table with its checksum; reads all of it, once.

        A member is compared with the archive anyway; call this if a member is missing.
        """
        if self._stated_xxh3 is not None and _xxh3_of(self._columns) == self._stated_xxh3:
            self._stated_xxh3 = None
        return self._stated_xxh3 is None

    def to_bytes(self) -> bytes:
        """Return the table as the content of a file."""
        head = _HEAD.pack(_MAGIC, len(self), self.has_end, _xxh3_of(self._columns))
        return head + np.ascontiguousarray(self._columns).tobytes()


class Walk(Protocol):
    """Members of an archive, in order, and then whether it has an end mark.

    Iterating raises BrokenArchiveError where the archive cannot be parsed.
    """

    has_end: bool

    def __iter__(self) -> Iterator[FoundMember]:
        """Begin at the first member."""
        ...


def build_table(found: Walk) -> MemberTable:
    """Return the table of the members of a walk; raises as the walk does."""
    values, links = array("Q"), array("Q")
    for item in found:
        if item.link_to:
            links.extend((len(values) // _NUM_COLUMNS, *_hash(member_name(item.link_to))))
        m = item.member
        hashes = _hash(member_name(item.name))
        values.extend((*hashes, m.kind, m.offset, m.stored_bytes, m.num_bytes, m.check))
    rows = np.frombuffer(values, dtype=np.uint64).reshape(-1, _NUM_COLUMNS)
    if links:
        rows = _resolved(rows, np.frombuffer(links, dtype=np.uint64).reshape(-1, 3))
    return _sorted_table(rows, has_end=found.has_end)


def _resolved(rows: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Return the rows with each hard link replaced by its target at that point of the archive.

    A link without a target is left out. `links` is uint64 [num_links, 3]: a row, and its
    target's hash.
    """
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    first = rows[order, 0]
    rows, is_kept = rows.copy(), np.ones(len(rows), bool)
    for row, high, low in links.tolist():
        bounds = (np.searchsorted(first, np.uint64(high), side) for side in ("left", "right"))
        same = order[slice(*bounds)]
        before = same[(same < row) & (rows[same, 1] == np.uint64(low)) & is_kept[same]]
        is_kept[row] = len(before) > 0
        if is_kept[row]:
            rows[row, 2:] = rows[before[-1], 2:]
    return rows[is_kept]


def load_table(path: Path) -> MemberTable | None:
    """Map the table in a file; None if it is missing. A damaged file is removed."""
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return _mapped_table(mapped)
    except FileNotFoundError:
        return None
    except ValueError:
        path.unlink(missing_ok=True)
        return None


def _mapped_table(mapped: mmap.mmap) -> MemberTable:
    magic, num_members, has_end, stated_xxh3 = _HEAD.unpack(mapped[: _HEAD.size].ljust(_HEAD.size))
    if magic != _MAGIC or len(mapped) != _HEAD.size + num_members * _NUM_COLUMNS * 8:
        message = "not a table of members"
        raise ValueError(message)
    columns = np.frombuffer(mapped, dtype=np.uint64, offset=_HEAD.size)
    columns = columns.reshape(_NUM_COLUMNS, num_members)
    return MemberTable(columns, has_end=bool(has_end), stated_xxh3=stated_xxh3)


def _sorted_table(rows: np.ndarray, *, has_end: bool) -> MemberTable:
    """Build the table from `rows`, uint64 [num_members, 7], in the archive's order."""
    if not len(rows):
        return MemberTable(np.empty((_NUM_COLUMNS, 0), np.uint64), has_end=has_end)
    order = np.lexsort((rows[:, 1], rows[:, 0]))  # stable: equal names stay in the archive's order
    hashes = rows[order, :2]
    is_last = np.ones(len(rows), bool)
    is_last[:-1] = (hashes[1:] != hashes[:-1]).any(axis=1)
    columns = np.ascontiguousarray(rows[order[is_last]].T)
    return MemberTable(columns, has_end=has_end)


def _xxh3_of(columns: np.ndarray) -> int:
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(columns))


def _hash(name: bytes) -> tuple[int, int]:
    digest: int = xxhash.xxh3_128_intdigest(name)
    return digest >> 64, digest & _HALF


# Walk over the raw headers of a tar: ustar, GNU and pax, the last two with long names.
#
# Python's `tarfile` creates an object per member and reads 30 thousand a second; an index needs
# only names and locations. The format: POSIX.1-2024 (pax), and "GNU tar: Basic Tar Format".


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


# Members of a zip, from its central directory, and their bytes.
#
# `zipfile` reads the directory (and handles Zip64 and data before and after the archive). The
# members are read in place by number, in any number of threads; an open `ZipFile` would serve
# threads one at a time.


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


# Opens archives and reads their members, for all threads of a task.
#
# A few archives stay open. The table of members of each is built once, by the first thread, while
# others wait only for that archive, and stored as a file for later slices.


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
