"""Manifests that are tables: one file or several, each of independent pieces.

A piece is a row group of Parquet or a record batch of Arrow. The index has the number of rows
and a checksum of each piece, without the bytes of images: these may be terabytes, and like
image files they are not part of the fingerprint. A slice opens only the files that it needs,
and verifies that each piece is the one that was counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.preprocess.file_facts import FileState, facts_of, kept_file
from pipeline.preprocess.manifests.interface import changed
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.manifests.class_labels import ClassNames, with_class_names
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row

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
    class_names: ClassNames
    """Names of the classes that columns have as numbers."""
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

    def _facts_now(self) -> list[FileState]:
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
                        named = with_class_names(value, table.class_names)
                        yield read_row(origin, named, self._options, unread=table.names_unread)
            first += batch.num_rows
            if first >= wanted.stop:
                return

    def _inspect(self, path: Path) -> _File:
        table = self._open(path, self._options)
        wrong = self._options.wrong_columns(table.names)
        if wrong:
            message = f"{path}: {wrong}"
            raise StageDataError(message)
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
        raise StageDataError(message) from error
