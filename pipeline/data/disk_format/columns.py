"""Columns of fixed width in one Arrow file, memory-mapped by readers.

The file is Arrow's IPC format ("Feather 2"), uncompressed, with a single record batch: each
column is one run of bytes, so one NumPy array over the mapped file, whatever its length.
Opening reads only the footer, and all processes of a node share the pages. The layout follows
from the number of rows. So a file is laid out first and its columns are filled in any order,
without holding a whole column in memory.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

from slurm_jobs.base.regular_files import open_regular

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
