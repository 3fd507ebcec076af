"""`index.arrow`: the location of each sample of a data set, in the order of the shards.

It is memory-mapped, so opening it costs a millisecond whatever the number of samples. Opening
checks the file's size, its columns and their length. `whole` compares a column with its
checksum in `dataset.json` before anything is decided from it. Reading a sample compares its
bytes with the checksum in its row, which also proves the row's location. `slurm-jobs verify`
compares everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from pipeline.data.disk_format.columns import ColumnTypes, map_columns, rows_type
from pipeline.data.disk_format.dataset_info import IndexInfo
from slurm_jobs.base.errors import StageError

INDEX_TYPES: ColumnTypes = {
    "key": np.dtype("<i8"),
    "shard": np.dtype("<i4"),
    "offset": np.dtype("<i8"),
    "num_bytes": np.dtype("<i8"),
    "num_tokens": np.dtype("<i4"),
    "num_supervised_tokens": np.dtype("<i4"),
    "num_images": np.dtype("<i4"),
    "num_pixels": np.dtype("<i8"),
    "xxh3": np.dtype("<u8"),
}
INDEX_ROW = rows_type(INDEX_TYPES)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetIndex:
    """Columns of the index, each with one entry a sample: read-only views of the mapped file."""

    key: np.ndarray
    """int64: the row of the manifest; `format_key` is how members are named."""
    shard: np.ndarray
    """int32: number of the shard."""
    offset: np.ndarray
    """int64: offset of the sample's first tar header in its shard."""
    num_bytes: np.ndarray
    """int64: of all members of the sample, headers and padding included."""
    num_tokens: np.ndarray
    """int32, image tokens included."""
    num_supervised_tokens: np.ndarray
    """int32."""
    num_images: np.ndarray
    """int32."""
    num_pixels: np.ndarray
    """int64: pixels of all stored images; 0 where they were not counted."""
    xxh3: np.ndarray
    """uint64: xxh3-64 of the sample's bytes."""
    path: Path
    checksums: IndexInfo
    _checked: set[str] = field(init=False, default_factory=set)

    def __len__(self) -> int:
        return len(self.key)

    def whole(self, name: str) -> np.ndarray:
        """Return a column as a whole, compared with its checksum the first time.

        Raises:
            StageError: it is not what `consolidate` wrote; the message names file and column.
        """
        column = getattr(self, name)
        if name not in self._checked:
            actual, expected = xxhash.xxh3_64_hexdigest(column.data), self.checksums.xxh3[name]
            if actual != expected:
                message = (
                    f"{self.path}: the column {name} does not match its checksum (xxh3 {actual}, "
                    f"expected {expected}); copy the index again, or run consolidate again"
                )
                raise StageError(message)
            self._checked.add(name)
        return column


def manifests_of_keys(keys: np.ndarray, num_rows: Sequence[int]) -> np.ndarray:
    """Return for each key the place of the manifest that its row is from.

    Args:
        keys: int64. Those of copies of a sample are beyond all rows, by a multiple of their number.
        num_rows: Rows of each manifest, in the order of their rows.
    """
    row_ends = np.cumsum(num_rows)
    return np.searchsorted(row_ends, keys % row_ends[-1], side="right")


def format_key(number: int) -> str:
    """Return the key of a sample, as in the names of its members."""
    return f"{number:09d}"


def is_sound_index(path: Path, expected: IndexInfo, *, num_samples: int) -> bool:
    """Check whether a copy of the index matches `dataset.json` in every column."""
    try:
        index = open_index(path, expected, num_samples=num_samples)
        for name in INDEX_TYPES:
            index.whole(name)
    except (StageError, OSError):
        return False
    return True


def open_index(path: Path, expected: IndexInfo, *, num_samples: int) -> DatasetIndex:
    """Map the index that `dataset.json` describes.

    Raises:
        StageError: it is missing, truncated, or belongs to another data set.
    """
    remedy = "copy it again, or run consolidate again"
    try:
        num_bytes = path.stat().st_size
        if num_bytes != expected.num_bytes:
            message = f"{path}: {num_bytes} bytes, expected {expected.num_bytes}; {remedy}"
            raise StageError(message)
        columns = map_columns(path, INDEX_TYPES)
    except (OSError, ValueError) as error:
        message = f"{path}: no index that can be mapped ({error}); {remedy}"
        raise StageError(message) from error
    index = DatasetIndex(**columns, path=path, checksums=expected)
    if len(index) != num_samples:
        message = f"{path}: {len(index)} rows, expected {num_samples}; {remedy}"
        raise StageError(message)
    return index
