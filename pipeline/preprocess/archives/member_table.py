"""Locations of an archive's members: a table of numbers, sorted by the hash of the name.

A member takes 56 bytes, whatever the length of its name. The table is written once and
memory-mapped by its readers, so an archive of ten million members costs a task only the pages
it reads.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import numpy as np
import xxhash

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
