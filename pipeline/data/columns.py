"""Columns of fixed width in one Arrow file, which readers map into memory instead of reading it.

The file is Arrow's IPC format ("Feather 2"), uncompressed, with a single record batch: each column
is one run of bytes, hence one NumPy array over the mapped file, whatever its length. Opening costs
a look at the footer, and all processes of a node share the pages. Where the values lie follows
from the number of rows, so a file is laid out first and its columns are filled in any order, by
whoever has them, without ever holding one in memory.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

ColumnTypes = Mapping[str, np.dtype[Any]]
"""The type of each column by its name, in the order of the file."""


class ColumnsWriter:
    """Lays out a file of `num_rows` rows in `stream`, and fills it from the first row on.

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
        """Fill in the next rows: a structured array that has the columns as fields."""
        for name, dtype in self._types.items():
            values = np.ascontiguousarray(rows[name], dtype=dtype)
            self._digests[name].update(values.data)
            if len(values):
                self._stream.seek(self._places[name] + self._num_written * dtype.itemsize)
                self._stream.write(values.data)
        self._num_written += len(rows)

    def finish(self) -> dict[str, str]:
        """The xxh3-64 of the values of each column, in hexadecimal; all rows are there."""
        assert self._num_written == self._num_rows
        return {name: digest.hexdigest() for name, digest in self._digests.items()}


def map_columns(path: Path, types: ColumnTypes) -> dict[str, np.ndarray]:
    """The columns of a file as read-only views of the mapped file.

    Raises:
        OSError: the file cannot be mapped.
        ValueError: it is no Arrow file, or has other columns, or more than one record batch.
    """
    try:
        return _mapped(path, types)
    except pa.ArrowException as error:  # some, as of types that Arrow lacks, are no ValueErrors
        raise ValueError(str(error)) from error


def _mapped(path: Path, types: ColumnTypes) -> dict[str, np.ndarray]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        if reader.schema != _schema(types) or reader.num_record_batches != 1:
            message = (
                f"{reader.num_record_batches} record batches of "
                f"({', '.join(f'{f.name}: {f.type}' for f in reader.schema)}), expected 1 of "
                f"({', '.join(f'{f.name}: {f.type}' for f in _schema(types))})"
            )
            raise ValueError(message)
        batch = reader.get_batch(0)  # keeps the file mapped for as long as any column lives
    columns = zip(types, batch.columns, strict=True)
    return {name: _view(column, types[name]) for name, column in columns}


def _view(column: pa.Array, dtype: np.dtype) -> np.ndarray:
    """The values of a column without nulls. Its own `to_numpy` imports pandas, where there is one.

    Raises:
        ValueError: it has nulls, or is shorter than it says.
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
    """The structured type of one row, fields side by side without gaps."""
    return np.dtype(list(types.items()))


def _schema(types: ColumnTypes) -> pa.Schema:
    return pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in types.items()])


class _HoleySink(io.RawIOBase):
    """Writes what pyarrow says of the columns, and skips their values, noting where they belong."""

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
    """Write all but the values; where those of each column begin, and the size of the file."""
    sink = _HoleySink(stream)
    schema = _schema(types)
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(
            pa.record_batch([_nothing(field.type, num_rows) for field in schema], schema=schema)
        )
    places = sink.places if num_rows else [0] * len(types)
    return dict(zip(types, places, strict=True)), sink.tell()


def _nothing(kind: pa.DataType, num_rows: int) -> pa.Array:
    """Values that nobody reads: zeros that the kernel need not provide, however many they are."""
    zeros = np.zeros(num_rows * kind.byte_width, dtype=np.uint8)
    return pa.Array.from_buffers(kind, num_rows, [None, pa.py_buffer(zeros)])
