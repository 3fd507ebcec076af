"""`index.parquet`: where each sample of a data set lies, in the order of the shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from slurm_jobs.common.errors import StageError

_TYPES = {
    "key": pa.string(),
    "shard": pa.int32(),
    "offset": pa.int64(),
    "num_bytes": pa.int64(),
    "num_tokens": pa.int32(),
    "num_supervised_tokens": pa.int32(),
    "num_images": pa.int32(),
    "xxh3": pa.uint64(),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetIndex:
    """Columns of the index, each with one entry a sample."""

    key: np.ndarray
    """int64: the key as a number; the row of the manifest. In the file a string of 9 digits."""
    shard: np.ndarray
    """int32: number of the shard."""
    offset: np.ndarray
    """int64: of the sample's first tar header in its shard."""
    num_bytes: np.ndarray
    """int64: of all members of the sample, headers and padding included."""
    num_tokens: np.ndarray
    """int32, image tokens included."""
    num_supervised_tokens: np.ndarray
    """int32."""
    num_images: np.ndarray
    """int32."""
    xxh3: np.ndarray
    """uint64: xxh3-64 of the sample's bytes."""

    def __len__(self) -> int:
        return len(self.key)


def format_key(number: int) -> str:
    """The key of a sample, as its members are named."""
    return f"{number:09d}"


def write_index(path_or_stream: object, index: DatasetIndex) -> None:
    """Write the index as Parquet; equal columns give equal bytes."""
    columns = {name: getattr(index, name) for name in _TYPES}
    columns["key"] = [format_key(number) for number in index.key]
    table = pa.table(columns, schema=pa.schema(list(_TYPES.items())))
    pq.write_table(table, path_or_stream, compression="zstd", use_dictionary=False)


def is_sound_index(path: Path, *, xxh3: str) -> bool:
    """Whether a copy of the index is the one that `dataset.json` was written for."""
    try:
        read_index(path, xxh3=xxh3)
    except (StageError, OSError):
        return False
    return True


def read_index(path: Path, *, xxh3: str) -> DatasetIndex:
    """Read the index and compare it with its checksum in `dataset.json`.

    Raises:
        StageError: the file is not the one that `dataset.json` was written for.
    """
    data = path.read_bytes()
    found = xxhash.xxh3_64_hexdigest(data)
    if found != xxh3:
        message = f"{path}: xxh3 {found}, expected {xxh3}; copy it or run consolidate again"
        raise StageError(message)
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    columns = {name: table.column(name).to_numpy() for name in _TYPES if name != "key"}
    keys = table.column("key").cast(pa.int64()).to_numpy()
    return DatasetIndex(key=keys, **columns)
