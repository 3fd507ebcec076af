"""Manifests that are tables: Parquet and Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipeline.preprocess.manifest_files import FileFacts, changed, facts_of, kept_file
from pipeline.preprocess.parquet_pages import HEADER_BYTES, dictionary_bytes
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.shared.manifests.tables import needed_columns, unread_names
from slurm_jobs.shared.manifests.values import RowOptions, read_row

# Manifests that are tables: one file or several, each of independent pieces.
#
# A piece is a row group of Parquet or a record batch of Arrow. The index has the number of rows
# and a checksum of each piece, without the bytes of images: these may be terabytes, and like
# image files they are not part of the fingerprint. A slice opens only the files that it needs,
# and verifies that each piece is the one that was counted.


BATCH_BYTES = 32 * 1024 * 1024
"""Limit of a table's rows in memory at once, as Arrow data; a single row may be more."""
MAX_BATCH_ROWS = 1024
MAX_SHARED_BYTES = 64 * 1024 * 1024
"""Limit of a batch in which each row has the largest value that rows of its column may share.

Reading such columns as dictionaries instead takes 1.5 to 2.5 times as long for images, and 10
times for texts."""
MAX_BULK_BYTES = 256 * 1024 * 1024
"""Limit of the Python values of a batch; rows of a larger one are converted one by one."""
MAX_TABLE_ROW_BYTES = 1024 * 1024 * 1024
"""Limit of one row's values, pictures included."""
_INDEX_FORMAT = "slurm-jobs-table-index-1"


class TableFile(Protocol):
    """Open file of a table."""

    names: Sequence[str]
    """Names of its columns."""
    names_unread: Sequence[str]
    """Columns whose values are not read: numbers, or those that the config ignores."""
    head_xxh3: int
    """Checksum of its schema or footer."""
    piece_rows: Sequence[int]
    """Rows of each piece."""

    def piece_xxh3(self, piece: int) -> int:
        """Return the checksum of a piece, without the bytes of images."""
        ...

    def batches(self, piece: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns that are read, some megabytes at a time."""
        ...


OpenTable = Callable[[Path, RowOptions], TableFile]


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    head_xxh3: int
    pieces: tuple[tuple[int, int], ...]
    """Rows and checksum of each."""


class TableManifest:
    """Manifest of tables. Rows are numbered through the files in their order."""

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        open_table: OpenTable,
        options: RowOptions,
        *,
        limit: int | None,
        index_dir: Path | None,
    ) -> None:
        """Scan the files, or load the stored index of them.

        Raises:
            StageConfigError: a file is damaged, or lacks columns.
        """
        self.path = path
        self._paths = files
        self._open = open_table
        self._options = options
        self._facts = self._facts_now()
        about = f"{getattr(open_table, '__name__', '')} 2 {options.columns}"
        self._kept = kept_file(index_dir, "manifest", self._facts, about=about)
        data = self._kept.load_checked()
        values = json.loads(data) if data is not None else {}
        if values.get("format") == _INDEX_FORMAT:
            self._files = tuple(
                _File(head_xxh3=head, pieces=tuple((rows, xxh3) for rows, xxh3 in pieces))
                for head, pieces in values["files"]
            )
        else:
            self._files = tuple(self._inspect(file) for file in files)
            self._kept.save_checked(_dump(self._files))
        self.fingerprint = _fingerprint(self._files)
        total = sum(rows for file in self._files for rows, _ in file.pieces)
        self.num_rows = total if limit is None else min(limit, total)

    def _facts_now(self) -> list[FileFacts]:
        return [facts_of(path) for path in self._paths]

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers (`Manifest.rows`)."""
        first = 0
        for path, file in zip(self._paths, self._files, strict=True):
            num_rows = sum(rows for rows, _ in file.pieces)
            if first >= wanted.stop or first + num_rows <= wanted.start:
                first += num_rows
                continue
            if not path.is_file():
                raise changed(self.path, f"{path.name} is missing")
            table = self._open(path, self._options)
            counted = [rows for rows, _ in file.pieces]
            if table.head_xxh3 != file.head_xxh3 or list(table.piece_rows) != counted:
                self._kept.remove()
                raise changed(self.path, f"{path.name} is not the file that was counted")
            for piece, (num_rows, xxh3) in enumerate(file.pieces):
                if first < wanted.stop and first + num_rows > wanted.start:
                    if table.piece_xxh3(piece) != xxh3:
                        self._kept.remove()
                        cause = f"{path.name} has other rows than when it was counted"
                        raise changed(self.path, cause)
                    yield from self._rows_of_piece(table, piece, first, wanted)
                first += num_rows

    def _rows_of_piece(
        self, table: TableFile, piece: int, first: int, wanted: range
    ) -> Iterator[ManifestRow]:
        for batch in table.batches(piece):
            start = max(0, wanted.start - first)
            stop = min(batch.num_rows, wanted.stop - first)
            if start < stop:
                values = _values(batch.slice(start, stop - start))
                for row, value in enumerate(values, start=first + start):
                    origin = RowOrigin(row=row, line=None, manifest=self.path)
                    if isinstance(value, str):
                        yield bad_row(origin, value)
                    else:
                        yield read_row(origin, value, self._options, unread=table.names_unread)
            first += batch.num_rows
            if first >= wanted.stop:
                return

    def _inspect(self, path: Path) -> _File:
        table = self._open(path, self._options)
        wrong = self._options.wrong_columns(table.names)
        if wrong:
            message = f"{path}: {wrong}"
            raise StageConfigError(message)
        rows = enumerate(table.piece_rows)
        pieces = tuple((num_rows, table.piece_xxh3(piece)) for piece, num_rows in rows)
        return _File(head_xxh3=table.head_xxh3, pieces=pieces)

    def fingerprint_now(self) -> str | None:
        """Return the current fingerprint; files are scanned only if their times have changed."""
        with suppress(OSError, StageConfigError):
            if self._facts_now() == self._facts:
                return self.fingerprint
            return _fingerprint([self._inspect(path) for path in self._paths])
        return None


def rows_a_batch(num_rows: int, num_bytes: int) -> int:
    """Return how many rows of a piece of this size are read at once."""
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * num_rows // max(1, num_bytes)))


def _values(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | str]:
    """Yield each row as Python values, or why it has none, such as invalid UTF-8."""
    if sum(map(_num_bytes, batch.columns)) <= MAX_BULK_BYTES:
        try:
            yield from batch.to_pylist()
        except ValueError:  # raised before the first row was yielded
            pass
        else:
            return
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        num_bytes = sum(map(_num_bytes, row.columns))
        if num_bytes > MAX_TABLE_ROW_BYTES:
            limit = f"rows of more than {MAX_TABLE_ROW_BYTES:,} are not read"
            yield f"its values have {num_bytes:,} bytes; {limit}"
            continue
        try:
            yield row.to_pylist()[0]
        except ValueError as error:
            yield f"a value that cannot be read ({error})"


def _num_bytes(column: pa.Array) -> int:
    """Return the bytes of all values: a value that a dictionary holds once may be in any row."""
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary)
        return pc.sum(lengths.take(column.indices)).as_py() or 0
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _num_bytes(column.flatten())
    if pa.types.is_struct(kind):
        return sum(map(_num_bytes, column.flatten()))
    return column.nbytes


def _fingerprint(files: Sequence[_File]) -> str:
    return xxhash.xxh3_64_hexdigest(_dump(files))


def _dump(files: Sequence[_File]) -> bytes:
    values = [[file.head_xxh3, file.pieces] for file in files]
    return json.dumps({"format": _INDEX_FORMAT, "files": values}).encode()


# Parquet files as tables of samples; a piece is a row group.
#
# The footer has the number of rows of each row group and the location of its column chunks, so
# rows are counted without reading them. The checksum of a row group is over the stored bytes of
# its chunks, without decoding, and without the chunks of binary columns, which are images. The
# footer is part of the file's checksum and has their sizes, so replaced images are detected in
# all likelihood, but not for certain.


_TAIL_BYTES = 8
"""Length of the footer, and the magic bytes."""
_BUFFER_BYTES = 1024 * 1024
"""Bytes of a column's chunk to read at once; by default pyarrow reads a whole chunk, images
included."""


class ParquetTable:
    """One Parquet file; see `TableFile`."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        """Read its footer.

        Raises:
            StageConfigError: it is truncated, or not Parquet.
            OSError: the file system failed.
        """
        self._path = path
        with broken_file(path, "Parquet"):
            self._file = pq.ParquetFile(
                path,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
        self._metadata = self._file.metadata
        self._options = options
        self.names = self._file.schema_arrow.names
        self._needed_columns = needed_columns(self._file.schema_arrow, options)
        self.names_unread = unread_names(self.names, self._needed_columns, options)
        with path.open("rb") as stream:
            stream.seek(-_TAIL_BYTES, 2)
            num_bytes = int.from_bytes(stream.read(4), "little")
            stream.seek(-_TAIL_BYTES - num_bytes, 2)
            self.head_xxh3 = xxhash.xxh3_64_intdigest(stream.read())
        groups = range(self._metadata.num_row_groups)
        self.piece_rows = [self._metadata.row_group(group).num_rows for group in groups]

    def piece_xxh3(self, piece: int) -> int:
        """Return the checksum of a piece (`TableFile.piece_xxh3`)."""
        digest = xxhash.xxh3_64()
        with broken_file(self._path, "Parquet"), self._path.open("rb") as stream:
            for start, num_bytes in self._text_chunks(piece):
                stream.seek(start)
                left = num_bytes
                while data := stream.read(min(left, _BUFFER_BYTES)):
                    digest.update(data)
                    left -= len(data)
        return digest.intdigest()

    def _text_chunks(self, piece: int) -> Iterator[tuple[int, int]]:
        """Yield offset and size of the chunks that are read and do not contain images."""
        group = self._metadata.row_group(piece)
        for index in range(group.num_columns if group.num_rows else 0):  # one without rows is empty
            chunk = group.column(index)
            column = self._metadata.schema.column(index)
            is_binary = chunk.physical_type == "BYTE_ARRAY" and column.logical_type.type == "NONE"
            if not is_binary and self._options.reads(chunk.path_in_schema.split(".")[0]):
                yield _start(chunk), chunk.total_compressed_size

    def _shared_values(self, piece: int) -> Iterator[tuple[pq.ColumnSchema, int, int]]:
        """Yield the columns whose values rows may share, their number, and the most bytes of one.

        Without a dictionary, values share bytes only in the encoding of prefixes.
        """
        group = self._metadata.row_group(piece)
        with self._path.open("rb") as stream:
            for index in range(group.num_columns if group.num_rows else 0):
                chunk = group.column(index)
                is_needed = chunk.path_in_schema.split(".")[0] in self._needed_columns
                if not is_needed or chunk.physical_type != "BYTE_ARRAY":
                    continue
                stream.seek(_start(chunk))
                num_bytes = dictionary_bytes(stream.read(HEADER_BYTES))
                if "DELTA_BYTE_ARRAY" in chunk.encodings:
                    num_bytes = max(num_bytes, chunk.total_uncompressed_size)
                yield self._metadata.schema.column(index), chunk.num_values, num_bytes

    def batches(self, piece: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a piece (`TableFile.batches`)."""
        group = self._metadata.row_group(piece)
        num_rows = rows_a_batch(group.num_rows, group.total_byte_size)
        repeated: list[str] = []
        with broken_file(self._path, "Parquet"):
            for column, num_values, num_bytes in self._shared_values(piece):
                if column.max_repetition_level == 0:
                    num_rows = min(num_rows, max(1, MAX_SHARED_BYTES // max(1, num_bytes)))
                elif num_values * num_bytes > MAX_SHARED_BYTES:  # one row may have all of them
                    repeated.append(column.path)
            file = pq.ParquetFile(
                self._path,
                metadata=self._metadata,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
                read_dictionary=repeated,
            )
        batches_of_group = file.iter_batches(
            batch_size=num_rows,
            row_groups=[piece],
            columns=self._needed_columns,
            use_threads=False,
        )
        while True:
            with broken_file(self._path, "Parquet"):
                batch = next(batches_of_group, None)
            if batch is None:
                return
            yield batch


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the place of the chunk's first page."""
    places = (chunk.dictionary_page_offset, chunk.data_page_offset)
    start = min(place for place in places if place)
    if start < 0 or chunk.total_compressed_size < 0:
        message = f"column {chunk.path_in_schema} begins at byte {start}"
        raise pa.ArrowInvalid(message)
    return int(start)


@contextmanager
def broken_file(path: Path, kind: str) -> Iterator[None]:
    """Turn pyarrow's errors about damaged bytes into the error of an unreadable file.

    pyarrow raises OSError for them and for the file system; only the latter has a number.
    """
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"{path}: damaged, truncated, or not {kind} ({error}); write or copy it again"
        raise StageConfigError(message) from error


# Arrow streams as `datasets` writes them to disk, as tables; a piece is a record batch.
#
# The file is memory-mapped: counting rows reads only the headers of the batches, and reading a
# batch touches only the requested rows. If a file is truncated while it is mapped, SIGBUS ends
# the process; nothing is written then, and the attempt fails.


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
            self.names = schema.names
            self._columns = [name for name in schema.names if options.reads(name)]
            self._needed_columns = needed_columns(schema, options)
            self.names_unread = unread_names(self.names, self._needed_columns, options)
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
        raise StageConfigError(message)
    source.seek(0)
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "record batch" and _is_compressed(message.metadata):
            text = f"{path}: its batches are compressed; save it again with `datasets`"
            raise StageConfigError(text)
    source.seek(0)
    batches = list(pa.ipc.open_stream(source))
    source.seek(max(0, source.size() - len(_END)))
    if source.read() != _END:
        message = f"{path}: truncated, the stream has no end; copy it again"
        raise StageConfigError(message)
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
