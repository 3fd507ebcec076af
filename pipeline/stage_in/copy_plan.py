"""Plan of the shards that a node copies, and of older copies to evict.

Pure: `store` determines the free room, and which copies are in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.data.disk_format.dataset_info import ShardInfo

SPARE_BYTES = 64 << 20
"""Left free on the local disk for other programs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherCopy:
    """Copy of another data set on this node's disk."""

    fingerprint: str
    num_bytes: int
    """Current size, or the final size if it is being copied."""
    used_unix_s: float
    """Time when a training last began or ended with it."""
    in_use: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskRoom:
    """Capacity of the local disk."""

    free_bytes: int
    """Without the outstanding bytes of running copies."""
    cap_bytes: int | None
    """Limit of all copies together; None: no limit."""
    present_bytes: int
    """Present part of this data set's copy, and its index, which is always copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyPlan:
    """Changes to the local disk."""

    copied: tuple[ShardInfo, ...]
    left_out: tuple[ShardInfo, ...]
    """Shards that do not fit: training reads them from the shared file system."""
    evicted: tuple[str, ...]
    """Fingerprints, least recently used first."""
    room_bytes: int
    """Room for shards, after the evictions; negative if there is too little."""

    @property
    def num_bytes(self) -> int:
        """Bytes to copy."""
        return sum(shard.num_bytes for shard in self.copied)


def plan_copy(
    missing: Sequence[ShardInfo], room: DiskRoom, others: Sequence[OtherCopy]
) -> CopyPlan:
    """Select the first shards that fit, and as few evictions as make all of them fit.

    Samples are spread over the shards at random, so all shards are worth the same: the first by
    number are staged in every attempt. A copy in use is never evicted.
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


def _room_bytes(room: DiskRoom, others: Sequence[OtherCopy], evicted: Sequence[OtherCopy]) -> int:
    freed = sum(other.num_bytes for other in evicted)
    room_on_disk = room.free_bytes + freed - SPARE_BYTES
    if room.cap_bytes is None:
        return room_on_disk
    kept = sum(other.num_bytes for other in others) - freed
    return min(room_on_disk, room.cap_bytes - room.present_bytes - kept)
