"""`index.arrow`: the location of each sample of a data set, in the order of the shards.

It is memory-mapped, so opening it costs a millisecond whatever the number of samples. Opening
checks the file's size, its columns and their length. `whole` compares a column with its
checksum in `dataset.json` before anything is decided from it. Reading a sample compares its
bytes with the checksum in its row, which also proves the row's location. `slurm-jobs verify`
compares everything.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.data.format import DatasetInfo, IndexInfo
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.regular_files import open_regular

# Columns of fixed width in one Arrow file, memory-mapped by readers.
#
# The file is Arrow's IPC format ("Feather 2"), uncompressed, with a single record batch: each
# column is one run of bytes, so one NumPy array over the mapped file, whatever its length.
# Opening reads only the footer, and all processes of a node share the pages. The layout follows
# from the number of rows. So a file is laid out first and its columns are filled in any order,
# without holding a whole column in memory.


ColumnTypes = Mapping[str, np.dtype[Any]]
"""Type of each column by its name, in the order of the file."""


class ColumnsWriter:
    """Writer that lays out a file of `num_rows` rows in `stream` and fills it in order.

    `stream` is a new file, open for writing.
    """

    def __init__(self, stream: IO[bytes], types: ColumnTypes, num_rows: int) -> None:
        self._stream = stream
        self._types = types
        self._num_rows = num_rows
        self._places, self.num_bytes = _lay_out(stream, types, num_rows)
        self._digests = {name: xxhash.xxh3_64() for name in types}
        self._num_written = 0

    def append(self, rows: np.ndarray) -> None:
        """Fill in the next rows, from a structured array with the columns as fields."""
        for name, dtype in self._types.items():
            values = np.ascontiguousarray(rows[name], dtype=dtype)
            self._digests[name].update(values.data)
            if len(values):
                self._stream.seek(self._places[name] + self._num_written * dtype.itemsize)
                self._stream.write(values.data)
        self._num_written += len(rows)

    def finish(self) -> dict[str, str]:
        """Return the xxh3-64 of each column's values, in hexadecimal, once all rows are written."""
        assert self._num_written == self._num_rows
        return {name: digest.hexdigest() for name, digest in self._digests.items()}


def map_columns(path: Path, types: ColumnTypes) -> dict[str, np.ndarray]:
    """Return the columns of a file as read-only views of the mapped file.

    Raises:
        OSError: the file cannot be mapped.
        ValueError: it is not an Arrow file, has other columns, or has more than one record
            batch.
    """
    try:
        return _mapped(path, types)
    except pa.ArrowException as error:  # some are not ValueErrors, as for unknown types
        raise ValueError(str(error)) from error


def _mapped(path: Path, types: ColumnTypes) -> dict[str, np.ndarray]:
    with open_regular(path):  # pyarrow waits for the writer of a pipe
        pass
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        if reader.schema != _schema(types) or reader.num_record_batches != 1:
            message = (
                f"{reader.num_record_batches} record batches of "
                f"({', '.join(f'{f.name}: {f.type}' for f in reader.schema)}), expected 1 of "
                f"({', '.join(f'{f.name}: {f.type}' for f in _schema(types))})"
            )
            raise ValueError(message)
        batch = reader.get_batch(0)  # keeps the file mapped while any column is in use
    columns = zip(types, batch.columns, strict=True)
    return {name: _view(column, types[name]) for name, column in columns}


def _view(column: pa.Array, dtype: np.dtype) -> np.ndarray:
    """Return the values of a column without nulls; its `to_numpy` would import pandas.

    Raises:
        ValueError: it has nulls, or fewer values than its length.
    """
    _, values = column.buffers()
    if column.null_count or (values is None and len(column)):
        message = f"a column has {column.null_count} nulls, or no values"
        raise ValueError(message)
    if values is None:
        return np.empty(0, dtype=dtype)
    start = column.offset * dtype.itemsize
    return np.frombuffer(values, dtype=dtype, count=len(column), offset=start)


def rows_type(types: ColumnTypes) -> np.dtype[Any]:
    """Return the structured type of one row, fields side by side without gaps."""
    return np.dtype(list(types.items()))


def _schema(types: ColumnTypes) -> pa.Schema:
    return pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in types.items()])


class _HoleySink(io.RawIOBase):
    """Sink that writes pyarrow's metadata of the columns, and records offsets instead of values."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0
        self.places: list[int] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        num_bytes = memoryview(data).nbytes
        if isinstance(data, pa.Buffer):  # of a column; all else comes as bytes
            self.places.append(self._position)
        else:
            self._stream.seek(self._position)
            self._stream.write(data)
        self._position += num_bytes
        return num_bytes


def _lay_out(stream: IO[bytes], types: ColumnTypes, num_rows: int) -> tuple[dict[str, int], int]:
    """Write all but the values; return the offset of each column, and the size of the file."""
    sink = _HoleySink(stream)
    schema = _schema(types)
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(
            pa.record_batch([_nothing(field.type, num_rows) for field in schema], schema=schema)
        )
    places = sink.places if num_rows else [0] * len(types)
    return dict(zip(types, places, strict=True)), sink.tell()


def _nothing(kind: pa.DataType, num_rows: int) -> pa.Array:
    """Return values that are never read: zero pages that the kernel need not provide."""
    zeros = np.zeros(num_rows * kind.byte_width, dtype=np.uint8)
    return pa.Array.from_buffers(kind, num_rows, [None, pa.py_buffer(zeros)])


INDEX_TYPES = {
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
    _checked: set[str] = field(default_factory=set)

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


# Statistics of a data set from its index: lengths, learned tokens, images.
#
# Columns are read block by block and counted by value: memory depends on the longest sample, not
# on their number, and percentiles are exact.


PERCENTILES = (5, 25, 50, 75, 95, 99)
MAX_BINS = 16
_BLOCK_ROWS = 1 << 20


def index_statistics(index: DatasetIndex, info: DatasetInfo) -> dict[str, Any]:
    """Return statistics over all samples, as JSON values.

    `num_tokens`, `num_supervised_tokens` and `num_images` per sample, and `num_pixels` per
    stored image, each have `mean`, `min`, `p5` to `p99`, `max`. A percentile is the smallest
    value that this share of the samples does not exceed. `num_tokens_bins` and
    `num_images_bins` are lists of `[first, last, num_samples]`, both ends included; the last
    bin reaches to the longest sample. `supervised_share` is of all tokens. `image_size` is the
    width and height of every stored image, None where they differ (`native`).

    Raises:
        StageError: a column does not match its checksum.
    """
    tokens = _count(len(index), index.whole("num_tokens").__getitem__)
    supervised = _count(len(index), index.whole("num_supervised_tokens").__getitem__)
    images = _count(len(index), index.whole("num_images").__getitem__)
    size = None
    if info.image_width is not None and info.image_height is not None:
        size = [info.image_width, info.image_height]
    return {
        "num_samples": len(index),
        "num_tokens": summary(tokens),
        "num_supervised_tokens": summary(supervised),
        "supervised_share": _sum(supervised) / max(1, _sum(tokens)),
        "num_images": summary(images),
        "num_pixels": _pixels(index, info),
        "image_size": size,
        "num_tokens_bins": bins(tokens),
        "num_images_bins": bins(images),
    }


def summary(counts: np.ndarray, unit: int = 1) -> dict[str, float] | None:
    """Return mean, extremes and percentiles, where value `i * unit` occurs `counts[i]` times.

    None if there is no value.
    """
    num = int(counts.sum())
    if not num:
        return None
    present = np.flatnonzero(counts)
    not_above = np.cumsum(counts)
    ranks = {f"p{p}": math.ceil(p * num / 100) for p in PERCENTILES}
    return {
        "mean": _sum(counts) * unit / num,
        "min": int(present[0]) * unit,
        **{name: int(np.searchsorted(not_above, rank)) * unit for name, rank in ranks.items()},
        "max": int(present[-1]) * unit,
    }


def bins(counts: np.ndarray) -> list[list[int]]:
    """Return at most `MAX_BINS` equal bins up to the 99th percentile, and one for the rest.

    The width is a power of two, and bins begin at multiples of it.
    """
    facts = summary(counts)
    if facts is None:
        return []
    first, usual, last = (int(facts[name]) for name in ("min", "p99", "max"))
    width = 1
    while usual // width - first // width >= MAX_BINS:
        width *= 2
    listed = [
        [start, start + width - 1, int(counts[start : start + width].sum())]
        for start in range(first // width * width, usual + 1, width)
    ]
    if last > listed[-1][1]:
        start = listed[-1][1] + 1
        listed.append([start, last, int(counts[start:].sum())])
    listed[-1][1] = min(listed[-1][1], last)
    listed[0][0] = max(listed[0][0], first)
    return listed


def _pixels(index: DatasetIndex, info: DatasetInfo) -> dict[str, float] | None:
    """Return statistics of pixels per stored image; for several images of a sample, their mean."""
    unit = 1
    if info.patch_size is not None and info.merge_size is not None:
        unit = (info.patch_size * info.merge_size) ** 2  # a native image has whole units
    pixels, images = index.whole("num_pixels"), index.whole("num_images")

    def of(rows: slice) -> np.ndarray:
        has_any = images[rows] > 0
        return pixels[rows][has_any] // images[rows][has_any] // unit

    return summary(_count(len(index), of), unit)


def _count(num_rows: int, values_of: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Count how often each value occurs: int64 [largest value + 1]."""
    counts = np.zeros(1, dtype=np.int64)
    for rows in _blocks(num_rows):
        more = np.bincount(values_of(rows), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts


def _blocks(num_rows: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK_ROWS) for start in range(0, num_rows, _BLOCK_ROWS))


def _sum(counts: np.ndarray) -> int:
    return int(np.dot(counts, np.arange(len(counts))))
