"""Choice of where a sample's bytes are read: the node's local disk, or the shared file system.

A shard is read from the local disk once it is complete there. A local shard is memory-mapped;
other processes may unlink it but never truncate it. A shard on a network file system is read
with `pread`: an error there is a `StageError` that names it, where a memory map would end the
process with SIGBUS. Samples are compared with their checksums unless `dataset` has verified
them in that place; bytes that come over a network are always compared. A damaged local copy is
deleted and the sample is read from the shared file system, so that the next staging copies it
again.
"""

from __future__ import annotations

import logging
import mmap
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import xxhash

from pipeline.data.disk_format.dataset_info import ShardInfo
from pipeline.data.shard_reading.opened_shards import MappedShard, check_size, open_shared
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.records.heartbeat import beat

log = logging.getLogger(__name__)

_MOST_FILES = 16_384  # Linux allows a process 65,530 maps of all kinds (vm.max_map_count)
LOCAL, SHARED = 1, 2
"""Places of bytes, as flags."""
_LOOK_AGAIN_S = 0.5
"""Time until a shard that was not on the local disk is looked up there again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCounts:
    """Cost of reading samples, their checksums included."""

    local_bytes: int = 0
    local_s: float = 0.0
    """Sum over all threads, as for `shared_s`."""
    shared_bytes: int = 0
    shared_s: float = 0.0
    num_damaged_shards: int = 0
    """On the local disk."""


class ShardFiles:
    """Bytes of a data set's shards; may be used from several threads."""

    def __init__(
        self,
        shards: Sequence[ShardInfo],
        shared_dir: Path,
        local_dir: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Open nothing yet.

        Args:
            shards: Names and sizes.
            shared_dir: Folder of the shards.
            local_dir: Folder of their copies, now or later, on the node's local disk; None for
                none.
            check: Called before each read; may raise to stop reading.
        """
        self.shared_dir = shared_dir
        self._shards, self._local_dir, self._check = shards, local_dir, check
        self._shared = _Recent(lambda shard: open_shared(shared_dir, shards[shard]))
        self._local = _Recent(self._open_local)
        self._missing_until: dict[int, float] = {}
        """Time of the monotonic clock, by shard."""
        self._lock = threading.Lock()
        self._counts = [0, 0, 0, 0, 0]

    @property
    def counts(self) -> ReadCounts:
        """Counts of all reads so far."""
        with self._lock:
            local_bytes, local_ns, shared_bytes, shared_ns, num_damaged = self._counts
        return ReadCounts(
            local_bytes=local_bytes,
            local_s=local_ns / 1e9,
            shared_bytes=shared_bytes,
            shared_s=shared_ns / 1e9,
            num_damaged_shards=num_damaged,
        )

    def read(
        self, shard: int, start: int, num_bytes: int, xxh3: int, compared: int = 0
    ) -> tuple[memoryview, int]:
        """Return these bytes of a shard, which must have this xxh3-64, and their place.

        The place is `LOCAL` or `SHARED`. Mapped bytes from the places in `compared` are not
        compared again; a copy may be damaged independently, and a network in between.

        Raises:
            StageError: the shared shard cannot be read, or the error of `check`.
            ValueError: they do not match their checksum, even on the shared file system, or are
                not in the shard.
        """
        self._check()
        if not 0 <= start <= start + num_bytes <= self._shards[shard].num_bytes:
            message = f"bytes {start} to {start + num_bytes} are not in the shard: damaged index"
            raise ValueError(message)
        start_ns = time.perf_counter_ns()
        mapped = self._find_local(shard)
        if mapped is not None:
            view = mapped.view[start : start + num_bytes]
            if compared & LOCAL or xxhash.xxh3_64_intdigest(view) == xxh3:
                self._count(0, num_bytes, time.perf_counter_ns() - start_ns)
                return view, LOCAL
            self._distrust(shard, mapped)
        view = self._read_shared(shard, start, num_bytes)
        is_known = compared & SHARED and isinstance(view.obj, mmap.mmap)
        if not is_known and xxhash.xxh3_64_intdigest(view) != xxh3:
            message = "the sample's bytes do not match their checksum"
            raise ValueError(message)
        self._count(2, num_bytes, time.perf_counter_ns() - start_ns)
        return view, SHARED

    def whole(self, shard: int) -> tuple[MappedShard, int] | None:
        """Return a shard in memory and its place, `LOCAL` or `SHARED`; None if it is not mapped.

        Raises:
            StageError: as in `read`.
        """
        self._check()
        mapped = self._find_local(shard)
        if mapped is not None:
            return mapped, LOCAL
        opened = self._shared.get(shard)
        return (opened, SHARED) if isinstance(opened, MappedShard) else None

    def count_taken(self, place: int, num_bytes: int) -> None:
        """Count bytes that were read from a whole shard."""
        self._count(0 if place == LOCAL else 2, num_bytes, 0)

    def path(self, shard: int) -> Path:
        """Return the current path of the whole shard, for other readers.

        Raises:
            StageError: it is missing on the shared file system, or has another size.
        """
        expected, is_local = self._shards[shard], self._find_local(shard) is not None
        if is_local and self._local_dir:
            return self._local_dir / expected.name
        path = self.shared_dir / expected.name
        try:
            check_size(path, path.stat().st_size, expected)
        except OSError as error:
            message = f"{path}: the shard cannot be read: {error}"
            raise StageError(message) from error
        return path

    def _count(self, place: int, num_bytes: int, duration_ns: int) -> None:
        beat()  # training may wait for a step whose samples come slowly
        with self._lock:
            self._counts[place] += num_bytes
            self._counts[place + 1] += duration_ns

    def _find_local(self, shard: int) -> MappedShard | None:
        if self._local_dir is None:
            return None
        until_s = self._missing_until.get(shard)
        if until_s is not None and time.monotonic() < until_s:
            return None
        try:
            return self._local.get(shard)
        except FileNotFoundError:
            self._missing_until[shard] = time.monotonic() + _LOOK_AGAIN_S
        except (OSError, StageError) as error:
            self._missing_until[shard] = float("inf")
            name = self._shards[shard].name
            log.warning("%s: %s; it is read from %s", name, error, self.shared_dir)
        return None

    def _open_local(self, shard: int) -> MappedShard:
        assert self._local_dir is not None
        return MappedShard(self._local_dir / self._shards[shard].name, self._shards[shard])

    def _distrust(self, shard: int, mapped: MappedShard) -> None:
        """Stop reading a damaged copy and delete it, unless it was replaced meanwhile."""
        with self._lock:
            if self._missing_until.get(shard) == float("inf"):
                return
            self._missing_until[shard] = float("inf")
            self._counts[4] += 1
        self._local.drop(shard)
        log.warning("%s is damaged on the local disk; it is read from %s", mapped.path,
                    self.shared_dir)  # fmt: skip
        mapped.unlink()

    def _read_shared(self, shard: int, start: int, num_bytes: int) -> memoryview:
        """Read through a new handle, in case the file was replaced on its server."""
        try:
            return self._shared.get(shard).read(start, num_bytes)
        except OSError:
            self._shared.drop(shard)
        path = self.shared_dir / self._shards[shard].name
        try:
            return self._shared.get(shard).read(start, num_bytes)
        except OSError as error:
            message = f"{path}: the shard cannot be read: {error}"
            raise StageError(message) from error


OpenedT = TypeVar("OpenedT")


class _Recent(Generic[OpenedT]):
    """Cache of the opened shards that were used last."""

    def __init__(self, open_shard: Callable[[int], OpenedT]) -> None:
        self._open = open_shard
        self._opened: OrderedDict[int, OpenedT] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shard: int) -> OpenedT:
        """Return the opened shard; opens it if it is not cached, and raises the error of that."""
        with self._lock:
            if shard in self._opened:
                self._opened.move_to_end(shard)
                return self._opened[shard]
        reader = self._open(shard)  # without the lock: at worst two threads open it
        with self._lock:
            self._opened[shard] = reader
            while len(self._opened) > max_opened():
                self._opened.popitem(last=False)  # samples in use keep their shards mapped
        return reader

    def drop(self, shard: int) -> None:
        """Open the shard again the next time."""
        with self._lock:
            self._opened.pop(shard, None)


def max_opened() -> int:
    """Return the limit of open shards per file system: a quarter of a process's open files.

    Each holds a file, mapped or not. Half is left for samples of maps that were released, and
    for other files of the process.
    """
    num_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if num_files == resource.RLIM_INFINITY else min(_MOST_FILES, num_files // 4)
