"""Archives of images: members of tar and zip files, listed once and read in any order."""

from __future__ import annotations

import io
import mmap
import os
import stat
import struct
import tarfile
import threading
import weakref
import zipfile
import zlib
from array import array
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO

import numpy as np
import xxhash

from pipeline.preprocess.file_facts import facts_of, kept_file
from slurm_jobs.base.regular_files import open_at_once
from slurm_jobs.formats.file_signatures import signature_of
from slurm_jobs.formats.tar_headers import (
    BLOCK,
    BrokenArchiveError,
    TarHeaders,
    cut_short,
    no_header,
)

_HEAD = struct.Struct("<16sQQQ")
_MAGIC = b"slurm-jobs-ar-2\0"
_NUM_COLUMNS = 7
_HALF = (1 << 64) - 1

_NUM_CHECKED_AT_ONCE = 1024
"""Headers whose checksums are compared at once; Python alone would need 3 us for each."""
_FAR_BYTES, _NEAR_BYTES = 4096, 256 * 1024
"""Bytes to read at a header if headers are far apart, and if they are close."""
_LARGEST = 2**63 - 1
"""Limit of the sizes in a header: file systems have no larger ones."""
_LOCAL = struct.Struct("<4s5H3I2H")
"""Local header of a zip's member; its last two numbers are the lengths of the name and of the
extra fields."""
_IS_ENCRYPTED, _IS_UTF8 = 0x1, 0x800
_UNIX = 3
_MOST_INFLATED = 1032
"""Greatest expansion factor of deflate (zlib's technical details)."""
_ROOM_FOR_NAMES = 512
"""Bytes read beyond a member's local header and data, so that one read usually suffices."""

_MAX_OPEN = 128


class CompressedArchiveError(BrokenArchiveError):
    """It seems intact, but is compressed as a whole."""


class DamagedMemberError(ValueError):
    """The bytes of one member do not match its checksum."""


class ArchiveChangedError(OSError):
    """An archive has changed since its members were listed; a new attempt may read it."""


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
_TAR_KINDS = {tarfile.DIRTYPE: Kind.FOLDER, tarfile.SYMTYPE: Kind.SYMBOLIC_LINK}
_ZIP_KINDS = {zipfile.ZIP_STORED: Kind.FILE, zipfile.ZIP_DEFLATED: Kind.DEFLATED}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveEntry:
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


def _hash(name: bytes) -> tuple[int, int]:
    """Return two halves of the hash of a name: `./cats/1.jpg` is `cats/1.jpg`, `a/` is `a`."""
    name = name.rstrip(b"/")
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    digest: int = xxhash.xxh3_128_intdigest(name)
    return digest >> 64, digest & _HALF


class MemberTable:
    """Table that finds members by name.

    A member takes 56 bytes, whatever the length of its name. The table is written once and
    memory-mapped by its readers, so an archive of ten million members costs a task only the
    pages it reads; `zipfile` and `tarfile` would keep an object for each member.
    """

    def __init__(
        self, columns: np.ndarray, *, has_end: bool, stated_xxh3: int | None = None
    ) -> None:
        """`columns` is uint64 [7, num_members], sorted by its first two rows, the name's hash.

        `stated_xxh3` is the checksum in the file that it was mapped from.
        """
        self._columns = columns
        self._stated_xxh3 = stated_xxh3
        self.has_end = has_end
        """True if the archive has an end mark; otherwise it may be truncated."""

    def __len__(self) -> int:
        return self._columns.shape[1]

    def find(self, name: bytes) -> ArchiveEntry | None:
        """Return the member called `name`; the table has each name once (`_make_table`)."""
        high, low = _hash(name)
        first, second = self._columns[0], self._columns[1]
        start, stop = (int(np.searchsorted(first, np.uint64(high), s)) for s in ("left", "right"))
        for place in range(start, stop):
            # A number that is no kind shows damage in the stored table. The member then counts as
            # missing, and so the table is compared with its checksum (`Archive.check_table`).
            if int(second[place]) == low and int(self._columns[2, place]) in _KINDS:
                kind, *others = (int(value) for value in self._columns[2:, place])
                offset, stored_bytes, num_bytes, check = others
                return ArchiveEntry(
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


def _xxh3_of(columns: np.ndarray) -> int:
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(columns).data)


def load_table(path: Path) -> MemberTable | None:
    """Map the table in a file; None if it is missing. A damaged file is removed."""
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    except ValueError:  # an empty file
        path.unlink(missing_ok=True)
        return None
    magic, num_members, has_end, stated_xxh3 = _HEAD.unpack(mapped[: _HEAD.size].ljust(_HEAD.size))
    if magic != _MAGIC or len(mapped) != _HEAD.size + num_members * _NUM_COLUMNS * 8:
        path.unlink(missing_ok=True)
        return None
    columns = np.frombuffer(mapped, dtype=np.uint64, offset=_HEAD.size)
    columns = columns.reshape(_NUM_COLUMNS, num_members)
    return MemberTable(columns, has_end=bool(has_end), stated_xxh3=stated_xxh3)


def _make_table(values: array[int], links: array[int], *, has_end: bool) -> MemberTable:
    """Make the table of members that are given in the archive's order.

    `values` has seven numbers for each member, `links` three for each hard link: the link's row
    and its target's hash. Of several members of one name the last is kept, as when unpacking.
    """
    rows = np.frombuffer(values, dtype=np.uint64).reshape(-1, _NUM_COLUMNS).copy()
    # stable: members of one name stay in the archive's order
    by_name = np.lexsort((rows[:, 1], rows[:, 0]))
    has_content = _resolve_links(rows, by_name, links)
    by_name = by_name[has_content[by_name]]
    hashes = rows[by_name, :2]
    is_last_of_name = np.ones(len(by_name), bool)
    is_last_of_name[:-1] = (hashes[1:] != hashes[:-1]).any(axis=1)
    return MemberTable(np.ascontiguousarray(rows[by_name[is_last_of_name]].T), has_end=has_end)


def _resolve_links(rows: np.ndarray, by_name: np.ndarray, links: array[int]) -> np.ndarray:
    """Make each hard link what its target was at that point of the archive.

    `by_name` has the numbers of `rows`, sorted by the hash of the name, then by their place in
    the archive. Returns bool [num_rows]: False for links without a target.
    """
    has_content = np.ones(len(rows), bool)
    first = rows[by_name, 0]
    for link, high, low in zip(links[::3], links[1::3], links[2::3], strict=True):
        start, stop = (np.searchsorted(first, np.uint64(high), side) for side in ("left", "right"))
        near = by_name[start:stop]  # members whose hash has the same first half
        is_target = (near < link) & (rows[near, 1] == np.uint64(low)) & has_content[near]
        targets = near[is_target]
        if len(targets):
            rows[link, 2:] = rows[targets[-1], 2:]
        else:
            has_content[link] = False
    return has_content


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Return up to `length` bytes at `offset`, fewer at the end of the file; thread-safe."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    pieces = [data]
    missing = length - len(data)
    while missing and (data := os.pread(fd, missing, offset + length - missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


def list_tar(fd: int, num_bytes: int) -> MemberTable:
    """Return the members of the tar in an open file.

    `tarfile` creates an object for each member and reads 8 to 30 thousand per second. So it
    reads only the headers of folders, links, long names, pax and sparse files. Those of plain
    files are read here.

    Raises:
        BrokenArchiveError: the archive is truncated, damaged, or not a tar.
    """
    if not num_bytes:
        message = "the file is empty"
        raise BrokenArchiveError(message)
    blocks = _Blocks(fd, num_bytes)
    # It owns nothing: the archive stays open when the stream is closed.
    others = TarHeaders(open(fd, "rb", closefd=False), num_bytes)  # noqa: SIM115
    values, links = array("Q"), array("Q")
    unchecked: list[bytes] = []
    position, has_end = 0, False
    while position < num_bytes:
        header = blocks.read(position)
        if not any(header):
            has_end = True
            break
        name = header[:100].split(b"\0", 1)[0]
        is_plain = header[156] in b"0\0" and header[124] < 0x80 and not name.endswith(b"/")
        if is_plain and not others.has_global_headers:
            try:
                size = int(header[124:136].strip(b" \0") or b"0", 8)
            except ValueError as error:
                raise BrokenArchiveError(no_header(position)) from error
            if header[345] and header[257:263] == b"ustar\0":  # GNU's own format has times there
                name = header[345:500].split(b"\0", 1)[0] + b"/" + name
            unchecked.append(header)
            if len(unchecked) == _NUM_CHECKED_AT_ONCE:
                _check_sums(unchecked)
                unchecked = []
            kind, start = Kind.FILE, position + BLOCK
            end = start + -(-size // BLOCK) * BLOCK
        else:
            info, end = others.read(position, header)
            name = info.name.encode("utf-8", "surrogateescape")
            start, size = info.offset_data, info.size
            kind = _kind_of(info)
            if info.islnk():
                target = info.linkname.encode("utf-8", "surrogateescape")
                links.extend((len(values) // _NUM_COLUMNS, *_hash(target)))
        if not 0 <= size <= _LARGEST:
            raise BrokenArchiveError(no_header(position))
        if end > num_bytes:
            raise BrokenArchiveError(cut_short(num_bytes))
        check = 0
        if kind is Kind.FILE:
            # Behind a long name or pax values, the header at `position` is not the member's own.
            last_header = header if start == position + BLOCK else blocks.read(start - BLOCK)
            check = xxhash.xxh3_64_intdigest(last_header, seed=size)
        values.extend((*_hash(name), kind, start, size, size, check))
        position = end
    _check_sums(unchecked)
    return _make_table(values, links, has_end=has_end)


def _kind_of(info: tarfile.TarInfo) -> Kind:
    if info.issparse():
        return Kind.SPARSE
    is_file = info.isreg() and not info.name.endswith("/")
    return _TAR_KINDS.get(info.type, Kind.FILE if is_file else Kind.OTHER)


class _Blocks:
    """Blocks of an open file, read ahead while headers are close together."""

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._fd = fd
        self._num_bytes = num_bytes
        self._start = 0
        self._data = b""

    def read(self, offset: int) -> bytes:
        at = offset - self._start
        if not 0 <= at <= len(self._data) - BLOCK:
            gap = at - len(self._data)
            ahead = _NEAR_BYTES if 0 <= gap < 4 * _FAR_BYTES else _FAR_BYTES
            self._data = read_at(self._fd, offset, ahead)
            self._start, at = offset, 0
        block = self._data[at : at + BLOCK]
        if len(block) < BLOCK:
            raise BrokenArchiveError(cut_short(self._num_bytes))
        return block


def _check_sums(headers: list[bytes]) -> None:
    """Compare the headers with their checksums."""
    blocks = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, BLOCK)
    sums = blocks.sum(axis=1, dtype=np.int64) - blocks[:, 148:156].sum(axis=1, dtype=np.int64)
    for header, total in zip(headers, (sums + 8 * ord(" ")).tolist(), strict=True):
        stated = header[148:156].split(b"\0", 1)[0].strip()
        if stated.isdigit() and stated == b"%0*o" % (len(stated), total):
            continue
        try:  # also the checksum of old writers, over signed bytes
            tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            message = "a header does not match its checksum"
            raise BrokenArchiveError(message) from error


_MAX_DIRECTORY_BYTES = 1 << 30
"""Limit of a zip's directory: that of ten million members."""


class _ZipDirectory(io.RawIOBase):
    """Open zip of which `zipfile` reads the directory, but not one that takes all memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY_BYTES:
            message = f"its directory has {size:,} bytes; {_MAX_DIRECTORY_BYTES:,} are read"
            raise zipfile.BadZipFile(message)
        return self._stream.read(size)


def list_zip(fd: int) -> MemberTable:
    """Return the members of the zip in an open file, from the directory at its end.

    Raises:
        BrokenArchiveError: its directory is missing or broken.
    """
    values = array("Q")
    with open(fd, "rb", closefd=False, buffering=1 << 20) as stream:
        try:
            with zipfile.ZipFile(_ZipDirectory(stream)) as archive:
                infos = archive.infolist()
            num_bytes = stream.seek(0, os.SEEK_END)
        # what `zipfile` raises for a malformed directory
        except (
            zipfile.BadZipFile,
            struct.error,
            NotImplementedError,
            ValueError,
            OverflowError,
        ) as error:
            message = f"truncated or not a zip ({error})"
            raise BrokenArchiveError(message) from error
    for info in infos:
        if not 0 <= info.header_offset <= num_bytes - info.compress_size:
            message = "its directory has a location before its first byte, or after its last"
            raise BrokenArchiveError(message)
        kind = _ZIP_KINDS.get(info.compress_type, Kind.UNKNOWN_METHOD)
        if info.flag_bits & _IS_ENCRYPTED:
            kind = Kind.ENCRYPTED
        if info.create_system == _UNIX and stat.S_ISLNK(info.external_attr >> 16):
            kind = Kind.SYMBOLIC_LINK
        if info.filename.endswith("/"):  # `is_dir` fails for an empty name
            kind = Kind.FOLDER
        names = [info.filename.encode("utf-8", "surrogateescape")]
        if not info.flag_bits & _IS_UTF8 and not info.filename.isascii():
            # The format says code page 437; most packers write the system's bytes, which is UTF-8.
            names.append(info.filename.encode("cp437", "replace"))
        numbers = (kind, info.header_offset, info.compress_size, info.file_size, info.CRC)
        for name in names:
            values.extend((*_hash(name), *numbers))
    return _make_table(values, array("Q"), has_end=True)  # a zip without its end is broken


def read_zip_member(fd: int, member: ArchiveEntry) -> bytes:
    """Return the content of a member of kind FILE or DEFLATED; for any number of threads.

    Not by `zipfile`, because an open `ZipFile` serves threads one at a time.

    Raises:
        DamagedMemberError: its bytes do not match the directory's checksum.
        BrokenArchiveError: no member at the directory's location.
        OSError: the file system failed.
    """
    stored_bytes = member.stored_bytes
    data = read_at(fd, member.offset, _LOCAL.size + _ROOM_FOR_NAMES + stored_bytes)
    if len(data) < _LOCAL.size or data[:4] != b"PK\x03\x04":
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
    plain = packed
    if member.kind is Kind.DEFLATED:  # to at most one byte more than expected
        try:
            most = min(member.num_bytes, _MOST_INFLATED * len(packed))
            plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most + 1)
        except zlib.error as error:
            message = f"its bytes cannot be inflated ({error})"
            raise DamagedMemberError(message) from error
    if len(plain) != member.num_bytes or zlib.crc32(plain) != member.check:
        message = "its bytes do not match the checksum (CRC-32) of the archive"
        raise DamagedMemberError(message)
    return plain


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
        facts = os.fstat(self._fd)
        if not stat.S_ISREG(facts.st_mode):
            message = "it is not a file"
            raise BrokenArchiveError(message)
        self._is_zip = path.suffix.lower() == ".zip"
        self._kept = kept_file(index_dir, "archive", [facts_of(path, self._fd)])
        self._num_bytes = facts.st_size
        self.table = self._load_table()

    def _load_table(self) -> MemberTable:
        kept = self._kept.path
        if kept is not None and (table := load_table(kept)) is not None:
            return table
        if self._is_zip:
            table = list_zip(self._fd)
        else:
            signature = signature_of(read_at(self._fd, 0, 8))
            if signature is not None and signature.group == "compressed":
                message = (
                    f"compressed as a whole ({signature.name}), so that members cannot be read "
                    "in place; decompress it and keep the tar"
                )
                raise CompressedArchiveError(message)
            table = list_tar(self._fd, self._num_bytes)
        self._kept.save(table.to_bytes())
        mapped = None if kept is None else load_table(kept)
        return table if mapped is None else mapped  # a mapped one uses no memory of this task

    def read(self, member: ArchiveEntry) -> bytes:
        """Return the content of a member, which must be of a readable kind.

        Raises:
            DamagedMemberError: a zip member does not match its checksum.
            ArchiveChangedError: the archive has changed since its table was built.
            OSError: the file system failed.
        """
        before, length = (0, member.stored_bytes) if self._is_zip else (BLOCK, member.num_bytes)
        if not before <= member.offset <= self._num_bytes - length:
            problem = f"{length} bytes at byte {member.offset} are not within it"
            raise self._changed(problem)
        if self._is_zip:
            try:
                return read_zip_member(self._fd, member)
            except BrokenArchiveError as error:
                raise self._changed(str(error)) from error
        data = read_at(self._fd, member.offset - BLOCK, BLOCK + member.num_bytes)
        is_same = xxhash.xxh3_64_intdigest(data[:BLOCK], seed=member.num_bytes) == member.check
        if not is_same or len(data) < BLOCK + member.num_bytes:
            problem = f"another header before byte {member.offset}"
            raise self._changed(problem)
        return data[BLOCK:]

    def check_table(self) -> None:
        """Verify the table before a row is rejected because of it.

        Raises:
            ArchiveChangedError: it is damaged; the next attempt builds it again.
        """
        if not self.table.is_whole():
            problem = "the stored list of members does not match its checksum"
            raise self._changed(problem)

    def _changed(self, problem: str) -> ArchiveChangedError:
        self._kept.remove()
        message = f"{self._path}: changed since its members were listed, or damaged ({problem})"
        return ArchiveChangedError(message)


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
                # make room for one more; archives that are being opened stay
                opened = [old for old, task in self._archives.items() if task.done()]
                for old in opened[: max(0, len(self._archives) + 1 - _MAX_OPEN)]:
                    del self._archives[old]
                future = self._archives[path] = Future()
            else:
                self._archives.move_to_end(path)
        if is_first:
            try:
                future.set_result(Archive(path, self._index_dir))
            except Exception as error:  # any error must reach the waiting threads
                with self._lock:
                    if self._archives.get(path) is future:
                        del self._archives[path]
                future.set_exception(error)
                raise
        return future.result()
