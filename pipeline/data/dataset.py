"""Reader of a data set: the index mapped, the shards from `shard_reading`.

Every sample is compared with its checksum when a process first reads it from the local disk,
and when it first reads it from the shared file system. So a damaged copy is not trained on,
even if it arrives in a later epoch. The comparison is not repeated while the file is mapped,
because for raw pixels it takes as long as the copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.disk_format.dataset_info import DatasetInfo, read_dataset_info
from pipeline.data.disk_format.index import DatasetIndex, format_key, open_index
from pipeline.data.disk_format.sample_members import Sample, unpack_sample
from pipeline.data.disk_format.tar_format import BLOCK
from pipeline.data.gathered import Gathered, ImageRule, image_rule
from pipeline.data.shard_reading.opened_shards import MappedShard
from pipeline.data.shard_reading.raw_layout import Arrays, Place, RawLayout, raw_layout
from pipeline.data.shard_reading.shard_files import LOCAL, SHARED, ShardFiles
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.dataset_folder import INDEX_NAME, SHARDS_DIR

log = logging.getLogger(__name__)

_LAID_OUT = 4
"""Flag next to `LOCAL` and `SHARED` (places with a matching checksum): `RawLayout` fits the sample.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedDataset:
    """Random access to the samples of a data set; may be used from several threads."""

    info: DatasetInfo
    index: DatasetIndex
    files: ShardFiles
    rule: ImageRule
    """Sizes that its images may have."""
    layout: RawLayout | None
    """Layout of samples with raw images, all of one size; otherwise None."""
    _known: memoryview
    """uint8 [num_samples]: flags of each sample, 0 before it is read."""

    def __len__(self) -> int:
        return self.info.num_samples

    def sample(self, number: int) -> Sample:
        """Return sample `number` of the index; its arrays are views into the shard or a copy.

        Raises:
            StageError: the shard is missing or damaged; the message names key and shard.
        """
        view = self.raw(number)
        if self.layout is None or not self._known[number] & _LAID_OUT:
            return self._unpack(number, view)
        return self.layout.unpack(
            view,
            key=format_key(self.index.key.item(number)),
            num_tokens=self.index.num_tokens.item(number),
            num_images=self.index.num_images.item(number),
        )

    def gather(self, numbers: list[int]) -> Gathered:
        """Return the arrays of several samples; faster than `sample` where images are raw.

        Raises:
            StageError: as in `sample`, or an image does not have the data set's size.
        """
        index = self.index
        # all samples at once is cheaper
        shards = index.shard[numbers].tolist()
        starts = index.offset[numbers].tolist()
        sizes = index.num_bytes[numbers].tolist()
        num_tokens = index.num_tokens[numbers].tolist()
        num_images = index.num_images[numbers].tolist()
        keys = [format_key(key) for key in index.key[numbers].tolist()]
        gathered = Gathered(
            keys=keys,
            input_ids=[],
            labels=[],
            images=[],
            image_sizes=[],
            num_images=[],
            pictures=None,
        )
        mapped_shards = self._compared_shards(numbers, shards, sizes)
        places = zip(starts, sizes, num_tokens, num_images, strict=True)
        for number, shard, mapped, place in zip(
            numbers, shards, mapped_shards, places, strict=True
        ):
            if mapped is not None and self.layout is not None and self._known[number] & _LAID_OUT:
                arrays = self.layout.arrays(mapped.data, mapped.words, place)
            else:
                start, size, _, _ = place
                if mapped is not None:
                    view = mapped.read(start, size)
                else:
                    view = self._view(number, shard, start, size)
                arrays = self._arrays(number, view, place)
            input_ids, labels, images, image_sizes = arrays
            gathered.input_ids.append(input_ids)
            gathered.labels.append(labels)
            gathered.images.extend(images)
            gathered.image_sizes.extend(image_sizes)
            gathered.num_images.append(len(images))
        return gathered

    def views(self, numbers: list[int]) -> list[memoryview]:
        """Return the bytes of several samples; faster than `raw` for each.

        Raises:
            StageError: as in `sample`.
        """
        index = self.index
        shards = index.shard[numbers].tolist()
        starts = index.offset[numbers].tolist()
        sizes = index.num_bytes[numbers].tolist()
        mapped_shards = self._compared_shards(numbers, shards, sizes)
        views = []
        for number, shard, start, size, mapped in zip(
            numbers, shards, starts, sizes, mapped_shards, strict=True
        ):
            if mapped is None:
                views.append(self._view(number, shard, start, size))
            else:
                views.append(mapped.read(start, size))
        return views

    def _compared_shards(
        self, numbers: list[int], shards: list[int], sizes: list[int]
    ) -> list[MappedShard | None]:
        """Return the mapped shard of each sample that was already compared with its checksum there.

        None for a sample that was not compared in the place (`LOCAL` or `SHARED`) that is mapped
        now; `_view` reads it. The bytes of the other samples are counted as read here.
        """
        known = [self._known[number] for number in numbers]
        compared = {shard for shard, flags in zip(shards, known, strict=True) if flags}
        opened = {shard: self.files.whole(shard) for shard in compared}
        num_read = {LOCAL: 0, SHARED: 0}
        mapped_shards: list[MappedShard | None] = []
        for shard, flags, size in zip(shards, known, sizes, strict=True):
            mapped, place = opened.get(shard) or (None, 0)
            if flags & place:
                num_read[place] += size
                mapped_shards.append(mapped)
            else:
                mapped_shards.append(None)
        for place, num_bytes in num_read.items():
            self.files.count_taken(place, num_bytes)
        return mapped_shards

    def _arrays(self, number: int, view: memoryview, place: Place) -> Arrays:
        if self.layout is not None and self._known[number] & _LAID_OUT:
            data = np.frombuffer(view, dtype=np.uint8)
            return self.layout.arrays(data, data.view("<i4"), (0, *place[1:]))
        sample = self._unpack(number, view)
        self._check_images(number, sample)
        images = [image.reshape(-1) for image in sample.images]
        sizes = [image.shape[:2] for image in sample.images]
        return sample.input_ids, sample.labels, images, sizes

    def raw(self, number: int) -> memoryview:
        """Return the bytes of a sample, tar members: a view into the shard, or a copy.

        Raises:
            StageError: as in `sample`.
        """
        index = self.index
        shard, start = index.shard.item(number), index.offset.item(number)
        return self._view(number, shard, start, index.num_bytes.item(number))

    def _view(self, number: int, shard: int, start: int, num_bytes: int) -> memoryview:
        if not 0 <= shard < self.info.num_shards:
            message = (
                f"{self.index.path}: sample {number} points to shard {shard}, which does not "
                "exist; the index is damaged"
            )
            raise StageError(message)
        known = self._known[number]
        xxh3 = self.index.xxh3.item(number)
        try:
            view, place = self.files.read(shard, start, num_bytes, xxh3, known)
        except (ValueError, OSError) as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error
        if not known & place:
            self._known[number] = known | place | self._layout_flag(number, start, view)
        return view

    def _unpack(self, number: int, view: memoryview) -> Sample:
        try:
            return unpack_sample(view)
        except (ValueError, OSError) as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error

    def _check_images(self, number: int, sample: Sample) -> None:
        try:
            self.rule.check(sample)
        except ValueError as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error

    def _layout_flag(self, number: int, start: int, view: memoryview) -> int:
        """Return `_LAID_OUT` or 0 for a sample whose checksum was compared."""
        sizes = self.index.num_tokens.item(number), self.index.num_images.item(number)
        fits = self.layout is not None and start % BLOCK == 0 and self.layout.fits(view, *sizes)
        return _LAID_OUT if fits else 0

    def where(self, number: int) -> str:
        """Return shard and key of a sample, for messages."""
        name = self.info.shards[int(self.index.shard[number])].name
        return f"{self.files.shared_dir / name}: sample {format_key(int(self.index.key[number]))}"


def open_dataset(
    dataset_dir: Path, local_dir: Path | None = None, check: Callable[[], None] = lambda: None
) -> ShardedDataset:
    """Open the data set that `consolidate` wrote.

    Args:
        dataset_dir: Its folder.
        local_dir: Folder of its copy on the node's local disk, which may be incomplete or in
            progress.
        check: Called before each read of a sample; may raise to stop reading.

    Raises:
        StageError: the data set is unfinished or damaged.
    """
    info = read_dataset_info(dataset_dir)
    layout = None
    if info.image_format == "raw" and info.image_height and info.image_width:
        layout = raw_layout((info.image_height, info.image_width, 3))
    return ShardedDataset(
        info=info,
        index=_open_index(info, dataset_dir, local_dir),
        files=ShardFiles(
            info.shards,
            dataset_dir / SHARDS_DIR,
            None if local_dir is None else local_dir / SHARDS_DIR,
            check,
        ),
        rule=image_rule(info),
        layout=layout,
        _known=np.zeros(info.num_samples, dtype=np.uint8).data,  # pages appear when written
    )


def _open_index(info: DatasetInfo, dataset_dir: Path, local_dir: Path | None) -> DatasetIndex:
    """Open the index from the local copy if it is valid, else from the shared one."""
    if local_dir is not None and (local_dir / INDEX_NAME).exists():
        try:
            return open_index(local_dir / INDEX_NAME, info.index, num_samples=info.num_samples)
        except (StageError, OSError) as error:
            log.warning("%s; it is read from %s", error, dataset_dir)
    return open_index(dataset_dir / INDEX_NAME, info.index, num_samples=info.num_samples)
