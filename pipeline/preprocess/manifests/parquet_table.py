"""Parquet files as tables of samples; a piece is a row group.

The footer has the number of rows of each row group and the location of its column chunks, so
rows are counted without reading them. The checksum of a row group is over the stored bytes of
its chunks, without decoding, and without the chunks of binary columns, which are images. The
footer is part of the file's checksum and has their sizes, so replaced images are detected in
all likelihood, but not for certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.preprocess.manifests.table_manifest import rows_a_batch
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.table_columns import looked_at, unread_names
from slurm_jobs.common.manifests.values import RowOptions

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
        self._looked_at = looked_at(self._file.schema_arrow, options)
        self.names_unread = unread_names(self.names, self._looked_at, options)
        self.head_xxh3 = xxhash.xxh3_64_intdigest(_footer(path))
        groups = range(self._metadata.num_row_groups)
        self.piece_rows = [self._metadata.row_group(group).num_rows for group in groups]

    def piece_xxh3(self, piece: int) -> int:
        """Return the checksum of a piece (`TableFile.piece_xxh3`)."""
        digest = xxhash.xxh3_64()
        with broken_file(self._path, "Parquet"), self._path.open("rb") as stream:
            for start, num_bytes in self._text_chunks(piece):
                stream.seek(start)
                digest.update(stream.read(num_bytes))
        return digest.intdigest()

    def _text_chunks(self, piece: int) -> Iterator[tuple[int, int]]:
        """Yield offset and size of the chunks that are read and do not contain images."""
        group = self._metadata.row_group(piece)
        for index in range(group.num_columns if group.num_rows else 0):  # one without rows is empty
            chunk = group.column(index)
            column = self._metadata.schema.column(index)
            is_binary = chunk.physical_type == "BYTE_ARRAY" and column.logical_type.type == "NONE"
            if not is_binary and self._options.reads(chunk.path_in_schema.split(".")[0]):
                places = (chunk.dictionary_page_offset, chunk.data_page_offset)
                start = min(place for place in places if place)
                if start < 0 or chunk.total_compressed_size < 0:
                    message = f"column {chunk.path_in_schema} begins at byte {start}"
                    raise pa.ArrowInvalid(message)
                yield start, chunk.total_compressed_size

    def batches(self, piece: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a piece (`TableFile.batches`)."""
        group = self._metadata.row_group(piece)
        found = self._file.iter_batches(
            batch_size=rows_a_batch(group.num_rows, group.total_byte_size),
            row_groups=[piece],
            columns=self._looked_at,
            use_threads=False,
        )
        while True:
            with broken_file(self._path, "Parquet"):
                batch = next(found, None)
            if batch is None:
                return
            yield batch


def _footer(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(-_TAIL_BYTES, 2)
        num_bytes = int.from_bytes(stream.read(4), "little")
        stream.seek(-_TAIL_BYTES - num_bytes, 2)
        return stream.read()


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
