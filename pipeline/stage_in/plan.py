"""Which shards a node copies, and which older copies make room for them.

Pure: how much room there is, and who uses what, is looked up by `store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.data.info import ShardInfo

SPARE_BYTES = 64 << 20
"""Left free on the local disk for whoever else writes there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherCopy:
    """A copy of another data set on this node's disk."""

    fingerprint: str
    num_bytes: int
    """That it has, or will have when whoever copies it now is done."""
    used_unix_s: float
    """When a training last began or ended with it."""
    in_use: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What the local disk offers."""

    free_bytes: int
    """Without what copies that are under way will still write."""
    cap_bytes: int | None
    """How much all copies together may take; None: as much as there is room."""
    present_bytes: int
    """Of this data set's copy, already there or, its index, sure to come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyPlan:
    """What is done on the local disk."""

    copied: tuple[ShardInfo, ...]
    left_out: tuple[ShardInfo, ...]
    """They do not fit: training reads them from the shared file system."""
    evicted: tuple[str, ...]
    """Fingerprints, the least recently used first."""
    room_bytes: int
    """For shards, after the evictions; below 0 where there is less than none."""

    @property
    def num_bytes(self) -> int:
        """That are copied."""
        return sum(shard.num_bytes for shard in self.copied)


def plan_copy(missing: Sequence[ShardInfo], room: Room, others: Sequence[OtherCopy]) -> CopyPlan:
    """Take the first shards that fit, and as few of the others away as lets all of them fit.

    Samples are spread over the shards at random, so none is worth more than another: the first by
    number stay those that are staged, in every attempt. A copy in use is never evicted.
    """
    wanted = sum(shard.num_bytes for shard in missing)
    evicted: list[OtherCopy] = []
    for other in sorted(others, key=lambda other: (other.used_unix_s, other.fingerprint)):
        if wanted <= _room_bytes(room, others, evicted):
            break
        if not other.in_use:
            evicted.append(other)
    left_bytes = room_bytes = _room_bytes(room, others, evicted)
    copied, left_out = [], []
    for shard in missing:
        if shard.num_bytes <= left_bytes:
            copied.append(shard)
            left_bytes -= shard.num_bytes
        else:
            left_out.append(shard)
    return CopyPlan(
        copied=tuple(copied),
        left_out=tuple(left_out),
        evicted=tuple(other.fingerprint for other in evicted),
        room_bytes=room_bytes,
    )


def _room_bytes(room: Room, others: Sequence[OtherCopy], evicted: Sequence[OtherCopy]) -> int:
    freed = sum(other.num_bytes for other in evicted)
    room_on_disk = room.free_bytes + freed - SPARE_BYTES
    if room.cap_bytes is None:
        return room_on_disk
    kept = sum(other.num_bytes for other in others) - freed
    return min(room_on_disk, room.cap_bytes - room.present_bytes - kept)
