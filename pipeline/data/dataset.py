"""A data set opened for reading: the index mapped, the shards where `shard_files` finds them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.data.index import DatasetIndex, format_key, open_index
from pipeline.data.info import INDEX_NAME, SHARDS_DIR, DatasetInfo, read_dataset_info
from pipeline.data.sample_format import Sample, unpack_sample
from pipeline.data.shard_files import ShardFiles
from slurm_jobs.common.errors import StageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedDataset:
    """Random access to the samples of a data set. May be used from several threads."""

    info: DatasetInfo
    index: DatasetIndex
    files: ShardFiles

    def __len__(self) -> int:
        return self.info.num_samples

    def sample(self, number: int) -> Sample:
        """Sample `number` of the index; its arrays are views into the shard, or into a copy.

        Raises:
            StageError: the shard is missing or damaged; key and shard are named.
        """
        shard, start = int(self.index.shard[number]), int(self.index.offset[number])
        num_bytes, xxh3 = int(self.index.num_bytes[number]), int(self.index.xxh3[number])
        if not 0 <= shard < self.info.num_shards:
            message = f"{self.index.path}: sample {number} lies in shard {shard}; it is damaged"
            raise StageError(message)
        try:
            return unpack_sample(self.files.read(shard, start, num_bytes, xxh3))
        except (ValueError, OSError) as error:
            message = f"{self.where(number)}: {error}"
            raise StageError(message) from error

    def where(self, number: int) -> str:
        """Shard and key of a sample, for messages."""
        name = self.info.shards[int(self.index.shard[number])].name
        return f"{self.files.shared_dir / name}: sample {format_key(int(self.index.key[number]))}"


def open_dataset(
    dataset_dir: Path, local_dir: Path | None = None, check: Callable[[], None] = lambda: None
) -> ShardedDataset:
    """Open the data set that `consolidate` wrote.

    Args:
        dataset_dir: its folder.
        local_dir: of a copy on the node's own disk, whole or not, or still being made.
        check: called before each read of a sample; may raise what should end the reading.

    Raises:
        StageError: the data set is unfinished or damaged.
    """
    info = read_dataset_info(dataset_dir)
    return ShardedDataset(
        info=info,
        index=_open_index(info, dataset_dir, local_dir),
        files=ShardFiles(
            info.shards,
            dataset_dir / SHARDS_DIR,
            None if local_dir is None else local_dir / SHARDS_DIR,
            check,
        ),
    )


def _open_index(info: DatasetInfo, dataset_dir: Path, local_dir: Path | None) -> DatasetIndex:
    """From the local copy where it has a sound one."""
    if local_dir is not None and (local_dir / INDEX_NAME).exists():
        try:
            return open_index(local_dir / INDEX_NAME, info.index, num_samples=info.num_samples)
        except (StageError, OSError) as error:
            log.warning("%s; it is read from %s", error, dataset_dir)
    return open_index(dataset_dir / INDEX_NAME, info.index, num_samples=info.num_samples)
