"""Parquet files as tables of samples; a piece is a row group.

The footer has the number of rows of each row group and the location of its column chunks, so
rows are counted without reading them. The checksum of a row group is over the stored bytes of
its chunks, without decoding, and without the chunks of binary columns, which are images. The
footer is part of the file's checksum and has their sizes, so replaced images are detected in
all likelihood, but not for certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.preprocess.manifests.parquet_pages import HEADER_BYTES, dictionary_bytes
from pipeline.preprocess.manifests.table_manifest import MAX_SHARED_BYTES, broken_file, rows_a_batch
from slurm_jobs.formats.manifests.class_labels import class_names
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.tables import needed_columns, unread_names

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
        self.names: Sequence[str] = self._file.schema_arrow.names
        self.class_names = class_names(self._file.schema_arrow, options)
        self._needed_columns = needed_columns(self._file.schema_arrow, options)
        self.names_unread: Sequence[str] = unread_names(self.names, self._needed_columns, options)
        with path.open("rb") as stream:
            stream.seek(-_TAIL_BYTES, 2)
            num_bytes = int.from_bytes(stream.read(4), "little")
            stream.seek(-_TAIL_BYTES - num_bytes, 2)
            self.head_xxh3 = xxhash.xxh3_64_intdigest(stream.read())
        groups = range(self._metadata.num_row_groups)
        self.piece_rows: Sequence[int] = [
            self._metadata.row_group(group).num_rows for group in groups
        ]

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
