"""Arrow streams as `datasets` writes them to disk, as tables; a piece is a record batch.

The file is memory-mapped: counting rows reads only the headers of the batches, and reading a
batch touches only the requested rows. If a file is truncated while it is mapped, SIGBUS ends
the process; nothing is written then, and the attempt fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import xxhash

from pipeline.preprocess.manifests.parquet_table import broken_file
from pipeline.preprocess.manifests.table_manifest import rows_a_batch
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.table_columns import looked_at, unread_names
from slurm_jobs.common.manifests.values import RowOptions

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""End mark of a stream. Without it a stream that is cut between two batches would seem complete."""


class ArrowTable:
    """Stream of record batches in a file; see `TableFile`."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        """Map it, and find its batches.

        Raises:
            StageConfigError: it is truncated, or not an Arrow stream.
            OSError: the file system failed.
        """
        self._path = path
        with broken_file(path, "Arrow stream"):
            source = pa.memory_map(str(path))
            self._batches = _read_batches(path, source)
            schema = self._batches[0].schema if self._batches else _schema(source)
            self.names = schema.names
            self._columns = [name for name in schema.names if options.reads(name)]
            self._looked_at = looked_at(schema, options)
            self.names_unread = unread_names(self.names, self._looked_at, options)
        self.head_xxh3 = xxhash.xxh3_64_intdigest(schema.remove_metadata().serialize())
        self.piece_rows = [batch.num_rows for batch in self._batches]

    def piece_xxh3(self, piece: int) -> int:
        """Return the checksum of a piece (`TableFile.piece_xxh3`)."""
        batch = self._batches[piece]
        digest = xxhash.xxh3_64()
        for name in self._columns:
            _hash(batch.column(name), digest)
        return digest.intdigest()

    def batches(self, piece: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a piece (`TableFile.batches`).

        Raises:
            StageConfigError: offsets point outside of the batch.
        """
        batch = self._batches[piece].select(self._looked_at)
        with broken_file(self._path, "Arrow stream"):
            _check_places(batch)
        step = rows_a_batch(batch.num_rows, batch.get_total_buffer_size())
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _read_batches(path: Path, source: pa.MemoryMappedFile) -> list[pa.RecordBatch]:
    """Return all batches without reading rows: they are views of the mapped file."""
    reader = pa.ipc.open_stream(source)
    if any(_has_dictionary(field.type) for field in reader.schema):
        message = f"{path}: a dictionary-encoded column; cast it to its values, and save it again"
        raise StageConfigError(message)
    batches = list(reader)
    source.seek(max(0, source.size() - len(_END)))
    if source.read() != _END:
        message = f"{path}: truncated, the stream has no end; copy it again"
        raise StageConfigError(message)
    return batches


def _schema(source: pa.MemoryMappedFile) -> pa.Schema:
    source.seek(0)
    return pa.ipc.open_stream(source).schema


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _check_places(batch: pa.RecordBatch) -> None:
    """Check that values are within the batch: Arrow trusts offsets when it reads memory.

    Texts are read as bytes here: invalid UTF-8 is its row's reject.

    Raises:
        pa.ArrowInvalid: they are not.
    """
    for column in batch.columns:
        plain = column.storage if isinstance(column, pa.ExtensionArray) else column
        plain.validate()
        plain.view(_as_bytes(plain.type)).validate(full=True)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Replace `string` by `binary`, which has the same memory layout."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in fields])
    return kind


def _hash(column: pa.Array, digest: xxhash.xxh3_64) -> None:
    """Hash all buffers of a column, except the bytes of binary values.

    Their offsets are hashed, and so the sizes of images.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    num_own = {"binary": 2, "list": 2, "struct": 1}.get(_shape(kind), len(column.buffers()))
    for buffer in column.buffers()[:num_own]:
        digest.update(b"\0" if buffer is None else memoryview(buffer))
    if _shape(kind) == "list":
        _hash(column.values, digest)
    elif _shape(kind) == "struct":
        for index in range(kind.num_fields):
            _hash(column.field(index), digest)


def _shape(kind: pa.DataType) -> str:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list"
    return "struct" if pa.types.is_struct(kind) else "other"
