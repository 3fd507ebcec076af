"""Arrow streams as `datasets` writes them to disk, as tables; a piece is a record batch.

The file is memory-mapped: counting rows reads only the headers of the batches, and reading a
batch touches only the requested rows. If a file is truncated while it is mapped, SIGBUS ends
the process; nothing is written then, and the attempt fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import xxhash

from pipeline.preprocess.manifests.table_manifest import broken_file, rows_a_batch
from slurm_jobs.base.errors import StageDataError
from slurm_jobs.formats.manifests.class_labels import class_names
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.tables import needed_columns, unread_names

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
            source.seek(0)
            schema = pa.ipc.open_stream(source).schema
            self.names: Sequence[str] = schema.names
            self._columns = [name for name in schema.names if options.reads(name)]
            self.class_names = class_names(schema, options)
            self._needed_columns = needed_columns(schema, options)
            self.names_unread: Sequence[str] = unread_names(
                self.names, self._needed_columns, options
            )
        head = bytes(schema.remove_metadata().serialize())
        if self.class_names:  # they are in the metadata, of which the rest changes nothing
            head += json.dumps(self.class_names, sort_keys=True).encode()
        self.head_xxh3 = xxhash.xxh3_64_intdigest(head)
        self.piece_rows: Sequence[int] = [batch.num_rows for batch in self._batches]

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
        batch = self._batches[piece].select(self._needed_columns)
        # Arrow trusts offsets when it reads memory. Texts are checked as bytes: invalid UTF-8 is
        # its row's reject.
        with broken_file(self._path, "Arrow stream"):
            for column in batch.columns:
                plain = column.storage if isinstance(column, pa.ExtensionArray) else column
                plain.validate()
                plain.view(_as_bytes(plain.type)).validate(full=True)
        step = rows_a_batch(batch.num_rows, batch.get_total_buffer_size())
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _read_batches(path: Path, source: pa.MemoryMappedFile) -> list[pa.RecordBatch]:
    """Return all batches without reading rows: they are views of the mapped file."""
    reader = pa.ipc.open_stream(source)
    if any(_has_dictionary(field.type) for field in reader.schema):
        message = f"{path}: a dictionary-encoded column; cast it to its values, and save it again"
        raise StageDataError(message)
    source.seek(0)
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "record batch" and _is_compressed(message.metadata):
            text = f"{path}: its batches are compressed; save it again with `datasets`"
            raise StageDataError(text)
    source.seek(0)
    batches = list(pa.ipc.open_stream(source))
    source.seek(max(0, source.size() - len(_END)))
    if source.read() != _END:
        message = f"{path}: truncated, the stream has no end; copy it again"
        raise StageDataError(message)
    return batches


_COMPRESSION_SLOT, _HEADER_SLOT = 10, 8
"""Places of `RecordBatch.compression` and `Message.header` in the tables of a message's flatbuffer
(Arrow's format/Message.fbs)."""


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Check whether a batch is compressed: unpacking it could take any amount of memory."""
    data = memoryview(metadata)

    def field(table: int, slot: int) -> int:
        fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
        num_bytes = int.from_bytes(data[fields : fields + 2], "little")
        place = int.from_bytes(data[fields + slot : fields + slot + 2], "little")
        return table + place if slot < num_bytes and place else 0

    message = int.from_bytes(data[:4], "little")
    header = field(message, _HEADER_SLOT)
    batch = header + int.from_bytes(data[header : header + 4], "little")
    return field(batch, _COMPRESSION_SLOT) > 0


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


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
