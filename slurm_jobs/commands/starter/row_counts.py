"""Number of rows of a manifest, counted if that is quick and estimated if it is not."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_set import TableFiles
from slurm_jobs.formats.manifests.tars.tar_groups import TarGroup, open_tar
from slurm_jobs.formats.manifests.text import JsonList
from slurm_jobs.formats.tar_headers import BLOCK, BrokenArchiveError

_HUGE_BYTES = 4 * 2**30
"""A longer text is not read to count its lines: a busy file server takes seconds per gigabyte."""
_LONG_LIST_BYTES = 64 * 2**20
"""A longer JSON list is not parsed to count its rows: Python parses some 100 MB per second."""
_MOST_GROUPS = 1_000
"""Samples of a tar from which the number of all is estimated."""
_PIECE_BYTES = 2**20
_SAMPLE_BYTES = 2**20
_BLANKS_AND_COMMA = re.compile(r"[ \t\r\n,]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCount:
    """Number of rows, and how it is known."""

    number: int | None
    """None: unknown."""
    is_exact: bool = True
    """False for an estimate, or a number of lines, of which some may be no rows."""


def count_text_rows(manifest: Path) -> RowCount:
    """Count the rows of CSV, JSON lines or a JSON list.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(manifest) as stream:
        num_bytes = os.fstat(stream.fileno()).st_size
        start = stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        stream.seek(0)
        if start.startswith(b"[") and manifest.suffix.lower() != ".csv":
            if num_bytes > _LONG_LIST_BYTES:
                return _estimated(stream, num_bytes)
            return _count_list(manifest, stream)
        if num_bytes > _HUGE_BYTES:
            return RowCount(number=None)
        num_lines, last = 0, b"\n"
        while piece := stream.read(_PIECE_BYTES):
            num_lines, last = num_lines + piece.count(b"\n"), piece[-1:]
    num_lines += last != b"\n"
    has_header = manifest.suffix.lower() == ".csv"
    return RowCount(number=max(0, num_lines - has_header), is_exact=False)


def _count_list(manifest: Path, stream: IO[bytes]) -> RowCount:
    try:
        blocks = JsonList(manifest, RowOptions()).find(stream)
        return RowCount(number=sum(block.num_rows for block in blocks))
    except StageConfigError:  # damaged: `check` reports it
        return RowCount(number=None)


def _estimated(stream: IO[bytes], num_bytes: int) -> RowCount:
    """Estimate the rows of a long list from the size of those at its beginning."""
    text = stream.read(_SAMPLE_BYTES).decode("utf-8-sig", errors="ignore")
    decoder, num_rows, end = json.JSONDecoder(), 0, text.index("[") + 1
    with suppress(ValueError):  # the last one is cut off, if none before is damaged
        while True:
            between = _BLANKS_AND_COMMA.match(text, end)
            _, end = decoder.raw_decode(text, between.end() if between else end)
            num_rows += 1
    number = round(num_rows * num_bytes / len(text[:end].encode())) if num_rows else None
    return RowCount(number=number, is_exact=False)


def count_table_rows(table: TableFiles) -> RowCount:
    """Count the rows of a table by its metadata; unknown without pyarrow, unless it is of tars."""
    if table.kind == "tar":
        return _count_tar_rows(table)
    from slurm_jobs.commands.spec_reading.manifest_tables import has_pyarrow

    if not has_pyarrow():
        return RowCount(number=None)
    import pyarrow as pa

    count = _parquet_rows if table.kind == "parquet" else _arrow_rows
    with suppress(pa.ArrowException, OSError):  # damaged: `check` reports it
        return RowCount(number=sum(map(count, table.files)))
    return RowCount(number=None)


def _count_tar_rows(table: TableFiles) -> RowCount:
    """Return the samples that img2dataset has counted, or an estimate from the first tars."""
    numbers = []
    for tar in table.files:
        with suppress(OSError, ValueError, LookupError, TypeError):
            values = json.loads(read_bytes(tar.with_name(f"{tar.stem}_stats.json")))
            numbers.append(int(values["successes"]))
    if len(numbers) == len(table.files):
        return RowCount(number=sum(numbers))
    num_rows = num_bytes = 0
    with suppress(OSError, BrokenArchiveError):
        for group in itertools.islice(_groups(table), _MOST_GROUPS):
            num_rows += 1
            for member in group.members.values():
                num_bytes += BLOCK + -(-member.size // BLOCK) * BLOCK
        if num_rows < _MOST_GROUPS:
            return RowCount(number=num_rows)
        all_bytes = sum(tar.stat().st_size for tar in table.files)
        return RowCount(number=round(num_rows * all_bytes / max(1, num_bytes)), is_exact=False)
    return RowCount(number=None)


def _groups(table: TableFiles) -> Iterator[TarGroup]:
    for tar in table.files:
        with open_tar(tar) as opened:
            yield from opened.groups(table.excluded)


def _parquet_rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(file).metadata.num_rows)


def _arrow_rows(file: Path) -> int:
    """Count the rows of a stream of batches; their columns stay on the disk."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as batches:
        return sum(int(batch.num_rows) for batch in batches)
