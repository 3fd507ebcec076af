"""A data set opened for reading: index and shards memory-mapped.

Every sample is compared with its checksum when it is read (xxh3 runs at tens
of GB/s), so that a bit that flipped on a local disk cannot be trained on.
"""

from __future__ import annotations

import mmap
import resource
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from pipeline.data.index import DatasetIndex, format_key, open_index
from pipeline.data.info import INDEX_NAME, SHARDS_DIR, DatasetInfo, read_dataset_info
from pipeline.data.sample_format import Sample, unpack_sample
from slurm_jobs.common.errors import StageError

_MOST_MAPS = 16_384  # Linux allows a process 65,530 maps of all kinds (vm.max_map_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedDataset:
    """Random access to the samples of a data set. May be used from several threads."""

    info: DatasetInfo
    index: DatasetIndex
    shards_dir: Path
    _maps: OrderedDict[int, memoryview] = field(default_factory=OrderedDict)
    """Of the shards that were read last, the oldest first."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return self.info.num_samples

    def sample(self, number: int) -> Sample:
        """Sample `number` of the index; its arrays are views into the mapped shard.

        Raises:
            StageError: the shard is missing or damaged; key and shard are named.
        """
        shard = int(self.index.shard[number])
        if not 0 <= shard < self.info.num_shards:
            message = f"{self.index.path}: sample {number} lies in shard {shard}; it is damaged"
            raise StageError(message)
        start = int(self.index.offset[number])
        view = self._map(shard)[start : start + int(self.index.num_bytes[number])]
        if xxhash.xxh3_64_intdigest(view) != int(self.index.xxh3[number]):
            message = f"{self.where(number)}: the sample's bytes do not match their checksum"
            raise StageError(message)
        try:
            return unpack_sample(view)
        except (ValueError, OSError) as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error

    def where(self, number: int) -> str:
        """Shard and key of a sample, for messages."""
        name = self.info.shards[int(self.index.shard[number])].name
        return f"{self.shards_dir / name}: sample {format_key(int(self.index.key[number]))}"

    def _map(self, shard: int) -> memoryview:
        with self._lock:
            if shard in self._maps:
                self._maps.move_to_end(shard)
                return self._maps[shard]
        view = self._open(shard)  # without the lock: the others read on, at worst one maps it too
        with self._lock:
            self._maps[shard] = view
            while len(self._maps) > max_maps():
                self._maps.popitem(last=False)  # samples in other hands keep theirs mapped
        return view

    def _open(self, shard: int) -> memoryview:
        expected = self.info.shards[shard]
        path = self.shards_dir / expected.name
        try:
            with path.open("rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: mmap of an empty file
            message = f"{path}: the shard cannot be mapped: {error}"
            raise StageError(message) from error
        if len(mapped) != expected.num_bytes:
            message = f"{path}: {len(mapped)} bytes, expected {expected.num_bytes}; it is damaged"
            raise StageError(message)
        return memoryview(mapped)


def max_maps() -> int:
    """How many shards are kept mapped: half of the files that this process may have open.

    Each map holds a file. The other half is for samples of maps that were let go, and for
    whatever else the process opens.
    """
    num_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_MAPS if num_files == resource.RLIM_INFINITY else min(_MOST_MAPS, num_files // 2)


def open_dataset(dataset_dir: Path, shards_dir: Path | None = None) -> ShardedDataset:
    """Open the data set that `consolidate` wrote, or a staged copy of it.

    `shards_dir` is where the shards are read from instead: a folder of
    shards, or a copy of the data set that has one.

    Raises:
        StageError: the data set is unfinished or damaged.
    """
    info = read_dataset_info(dataset_dir)
    source = dataset_dir if shards_dir is None else shards_dir
    return ShardedDataset(
        info=info,
        index=open_index(dataset_dir / INDEX_NAME, info.index, num_samples=info.num_samples),
        shards_dir=source / SHARDS_DIR if (source / SHARDS_DIR).is_dir() else source,
    )
