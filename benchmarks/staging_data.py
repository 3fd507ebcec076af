"""Data of the staging benchmark: a data set of random bytes, and a file system for it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from pipeline.data.disk_format.columns import ColumnsWriter
from pipeline.data.disk_format.dataset_info import (
    DatasetInfo,
    IndexInfo,
    ShardInfo,
    dataset_info_to_json,
)
from pipeline.data.disk_format.index import INDEX_ROW, INDEX_TYPES
from pipeline.data.shard_reading.shard_files import ReadCounts, ShardFiles
from slurm_jobs.formats.dataset_folder import INDEX_NAME, INFO_NAME, SHARDS_DIR, shard_name

SAMPLE_BYTES = 1 << 18
SECTOR_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much is copied, and how often."""

    num_shards: int
    shard_bytes: int
    repeats: int

    @property
    def num_bytes(self) -> int:
        """Size of all shards."""
        return self.num_shards * self.shard_bytes


def write_dataset(folder: Path, size: Size) -> Path:
    """Write shards of random bytes, and the files that staging reads."""
    (folder / SHARDS_DIR).mkdir(parents=True)
    random, shards, checksums = np.random.default_rng(0), [], []
    for number in range(size.num_shards):
        data = random.bytes(size.shard_bytes)
        (folder / SHARDS_DIR / shard_name(number)).write_bytes(data)
        view = memoryview(data)
        starts = range(0, size.shard_bytes, SAMPLE_BYTES)
        checksums += [xxhash.xxh3_64_intdigest(view[at : at + SAMPLE_BYTES]) for at in starts]
        xxh3 = xxhash.xxh3_64_hexdigest(data)
        shards.append(ShardInfo(name=shard_name(number), num_bytes=len(data), xxh3=xxh3,
                                num_samples=len(starts)))  # fmt: skip
    np.save(folder / "checksums.npy", np.array(checksums, dtype=np.uint64))
    index = write_plain_index(folder / INDEX_NAME, size, checksums)
    info = DatasetInfo(
        num_samples=len(checksums), num_shards=len(shards), num_tokens=1, num_images=1, seed=0,
        image_kind="fixed", patch_size=None, merge_size=None, temporal_patch_size=None,
        image_height=1, image_width=1, image_mean=(0.5,), image_std=(0.5,), rescale_factor=1.0,
        image_token="", image_token_id=0, pad_token_id=0, num_image_tokens=1,
        image_format="raw", preprocess={}, shards=tuple(shards), index=index,
    )  # fmt: skip
    (folder / INFO_NAME).write_text(json.dumps(dataset_info_to_json(info)))
    return folder


def write_plain_index(path: Path, size: Size, checksums: list[int]) -> IndexInfo:
    """Write the position of each sample, with zero tokens and images."""
    rows = np.zeros(len(checksums), dtype=INDEX_ROW)
    per_shard = len(checksums) // size.num_shards
    rows["key"] = np.arange(len(checksums))
    rows["shard"], rows["offset"] = np.divmod(rows["key"], per_shard)
    rows["offset"] *= SAMPLE_BYTES
    rows["num_bytes"] = np.minimum(SAMPLE_BYTES, size.shard_bytes - rows["offset"])
    rows["xxh3"] = checksums
    with path.open("wb") as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, len(rows))
        writer.append(rows)
        return IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())


def make_disk(image: Path, num_bytes: int) -> Path:
    """Make a file that can be mounted as a file system."""
    with image.open("wb") as stream:
        stream.truncate(num_bytes)
    argv = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image]
    subprocess.run(argv, check=True, capture_output=True)
    return image


@contextmanager
def mounted(image: Path, point: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folder of the mounted file system, and its device."""
    point.mkdir(exist_ok=True)
    argv = ["mount", "-o", "loop,noatime", image, point]
    subprocess.run(argv, check=True, capture_output=True)
    try:
        device = point.stat().st_dev
        yield point, f"{os.major(device)}:{os.minor(device)}"
    finally:
        subprocess.run(["umount", point], check=True, capture_output=True)


def sectors_read(device: str) -> int:
    """Return the sectors read since the device was made (Linux, Documentation/block/stat.rst)."""
    return int(Path(f"/sys/dev/block/{device}/stat").read_text().split()[2])


def read_samples(shared: Path, local: Path | None, numbers: list[int]) -> ReadCounts:
    """Read samples as the loader does, and compare their checksums."""
    shards = [
        ShardInfo(**shard) for shard in json.loads((shared / INFO_NAME).read_text())["shards"]
    ]
    checksums = np.load(shared / "checksums.npy")
    files = ShardFiles(shards, shared / SHARDS_DIR, None if local is None else local / SHARDS_DIR)
    for number in numbers:
        shard, place = divmod(number * SAMPLE_BYTES, shards[0].num_bytes)
        files.read(shard, place, SAMPLE_BYTES, int(checksums[number]))
    return files.counts
