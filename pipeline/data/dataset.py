"""A data set opened for reading: the index in memory, the shards memory-mapped.

Every sample is compared with its checksum when a process first reads it, so
that a bit that flipped on a local disk cannot be trained on. Not again, because
comparing raw pixels takes as long as copying them.
"""

from __future__ import annotations

import mmap
import resource
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from pipeline.data.gathered import Gathered, flat_images
from pipeline.data.index import DatasetIndex, format_key, read_index
from pipeline.data.info import INDEX_NAME, SHARDS_DIR, DatasetInfo, read_dataset_info
from pipeline.data.raw_layout import RawLayout, raw_layout
from pipeline.data.sample_format import Sample, unpack_sample
from slurm_jobs.common.errors import StageError

_SOUND, _LAID_OUT = 1, 2
"""What is known of a sample that was read: its bytes are right; `RawLayout` fits it, too."""
_MOST_MAPS = 16_384  # Linux allows a process 65,530 maps of all kinds (vm.max_map_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedDataset:
    """Random access to the samples of a data set. May be used from several threads."""

    info: DatasetInfo
    index: DatasetIndex
    shards_dir: Path
    layout: RawLayout | None
    """Of samples with raw images, all of one size."""
    _known: memoryview
    """uint8 [num_samples]: what is known of each sample, 0 before it was read."""
    _maps: OrderedDict[int, memoryview] = field(default_factory=OrderedDict)
    """Of shards, in the order in which they were mapped."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return self.info.num_samples

    def sample(self, number: int) -> Sample:
        """Sample `number` of the index; its arrays are views into the mapped shard.

        Raises:
            StageError: the shard is missing or damaged; key and shard are named.
        """
        view = self.raw(number)
        if self.layout is None or self._known[number] != _LAID_OUT:
            return self._unpack(number, view)
        return self.layout.unpack(
            view,
            key=format_key(self.index.key.item(number)),
            num_tokens=self.index.num_tokens.item(number),
            num_images=self.index.num_images.item(number),
        )

    def gather(self, numbers: list[int]) -> Gathered:
        """The arrays of several samples; faster than by `sample` where the images are raw.

        Raises:
            StageError: as `sample` does.
        """
        index, layout = self.index, self.layout
        places = index.shard, index.offset, index.num_bytes, index.num_tokens, index.num_images
        rows = (column[numbers].tolist() for column in places)  # at once: cheaper than one by one
        shape = (self.info.image_height, self.info.image_width, 3)
        keys = [format_key(key) for key in index.key[numbers].tolist()]
        found = Gathered(keys=keys, input_ids=[], labels=[], images=[])
        for number, shard, start, size, num_tokens, num_images in zip(numbers, *rows, strict=True):
            view = self._view(number, shard, start, size)
            if layout is not None and self._known[number] == _LAID_OUT:
                input_ids, labels, images = layout.arrays(view, num_tokens, num_images)
            else:
                sample = self._unpack(number, view)
                input_ids, labels = sample.input_ids, sample.labels
                images = flat_images(sample, shape)
            found.input_ids.append(input_ids)
            found.labels.append(labels)
            found.images.extend(images)
        return found

    def raw(self, number: int) -> memoryview:
        """The bytes of a sample, members of a tar: a read-only view into the mapped shard.

        Raises:
            StageError: as `sample` does.
        """
        index = self.index
        shard, start = index.shard.item(number), index.offset.item(number)
        return self._view(number, shard, start, index.num_bytes.item(number))

    def _view(self, number: int, shard: int, start: int, num_bytes: int) -> memoryview:
        mapped = self._maps.get(shard)
        if mapped is None:
            mapped = self._map(shard)
        view = mapped[start : start + num_bytes]
        if not self._known[number]:
            self._known[number] = self._look_at(number, view)
        return view

    def _unpack(self, number: int, view: memoryview) -> Sample:
        try:
            return unpack_sample(view)
        except (ValueError, OSError) as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error

    def _look_at(self, number: int, view: memoryview) -> int:
        """What is known of a sample after its checksum was compared."""
        if xxhash.xxh3_64_intdigest(view) != int(self.index.xxh3[number]):
            message = f"{self.where(number)}: the sample's bytes do not match their checksum"
            raise StageError(message)
        sizes = self.index.num_tokens.item(number), self.index.num_images.item(number)
        return _LAID_OUT if self.layout is not None and self.layout.fits(view, *sizes) else _SOUND

    def where(self, number: int) -> str:
        """Shard and key of a sample, for messages."""
        name = self.info.shards[int(self.index.shard[number])].name
        return f"{self.shards_dir / name}: sample {format_key(int(self.index.key[number]))}"

    def _map(self, shard: int) -> memoryview:
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
    is_raw = info.image_format == "raw"
    return ShardedDataset(
        info=info,
        index=read_index(dataset_dir / INDEX_NAME, xxh3=info.index_xxh3),
        shards_dir=source / SHARDS_DIR if (source / SHARDS_DIR).is_dir() else source,
        layout=raw_layout((info.image_height, info.image_width, 3)) if is_raw else None,
        _known=memoryview(np.zeros(info.num_samples, dtype=np.uint8)),  # memory as it is written
    )
