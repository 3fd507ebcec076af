"""Manifests to rows: CSV, JSON lines with chat `messages`, and LLaVA's JSON.

Rows are numbered over the whole manifest, so that neither a row's key nor its
part of the data set depends on how the manifest is cut into slices. A row that
cannot be understood stays in the list with its `problem`: one bad line of a
million is a reject, not the end of the stage.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from pipeline.preprocess.manifest_rows import (
    ManifestRow,
    RowOrigin,
    bad_row,
    row_from_chat,
    row_from_conversations,
    row_from_csv,
)
from slurm_jobs.common.csv_columns import CSV_COLUMNS, wrong_columns
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.preprocess import DEFAULT_PROMPT

if TYPE_CHECKING:
    from _csv import Reader as _CsvReader

_TOO_DEEP = "lists or mappings are nested too deeply to be read"


def slice_range(num_rows: int, slice_index: int, num_slices: int) -> range:
    """The rows of one slice; over all slices every row once, sizes within one of each other."""
    start = slice_index * num_rows // num_slices
    return range(start, (slice_index + 1) * num_rows // num_slices)


def hash_manifest(path: Path) -> str | None:
    """xxh3-64 of the file in hexadecimal; None if there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, xxhash.xxh3_64).hexdigest()


def read_manifest(
    path: Path,
    limit: int | None = None,
    *,
    prompt: str = DEFAULT_PROMPT,
    system_prompt: str = "",
) -> list[ManifestRow]:
    """The rows that `iter_manifest` gives, as a list; raises as it does."""
    return list(iter_manifest(path, limit, prompt=prompt, system_prompt=system_prompt))


def iter_manifest(
    path: Path,
    limit: int | None = None,
    *,
    prompt: str = DEFAULT_PROMPT,
    system_prompt: str = "",
) -> Iterator[ManifestRow]:
    """The first `limit` rows of a manifest, or all, one after the other.

    `prompt` and `system_prompt` surround the text of a CSV row; the other
    formats bring their own words.

    Raises:
        StageConfigError: the file is missing, of no known format, or no longer
            of its format somewhere (CSV). One that is blank has no rows.
    """
    if not path.is_file():
        message = f"{path}: no such manifest; give the path of a CSV, JSONL or JSON file"
        raise StageConfigError(message)
    first = _first_byte(path)
    rows: Iterator[ManifestRow]
    if not first:
        rows = iter(())
    elif path.suffix.lower() == ".csv":
        rows = _read_csv(path, prompt, system_prompt)
    elif first == b"[":
        rows = _read_json_list(path)
    elif first == b"{":
        rows = _read_json_lines(path)
    else:
        message = (
            f"{path}: neither a `.csv` file, nor JSON lines (first character `{{`), nor a JSON "
            f"list (`[`)"
        )
        raise StageConfigError(message)
    return itertools.islice(rows, limit)


def _first_byte(path: Path) -> bytes:
    """The first byte that is no blank; none of a file that is blank."""
    with path.open("rb") as stream:
        block = stream.read(4096).removeprefix(b"\xef\xbb\xbf")
        while block and not block.strip():
            block = stream.read(4096)
    return block.lstrip()[:1]


class _Lines:
    """The lines of a stream, and the one that was read last."""

    def __init__(self, stream: Iterable[str]) -> None:
        self._lines = iter(stream)
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last = next(self._lines)
        return self.last


def _read_csv(path: Path, prompt: str, system_prompt: str) -> Iterator[ManifestRow]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        lines = _Lines(stream)
        records = _csv_records(csv.reader(lines, strict=True), lines, path)
        _, first = next(records, (1, []))
        header = first if isinstance(first, list) else [first]
        columns = _find_columns(path, header)
        filled = (record for record in records if record[1])  # csv gives [] for an empty line
        for row, (line, cells) in enumerate(filled):
            origin = RowOrigin(row=row, line=line, manifest=path)
            if isinstance(cells, str):
                yield bad_row(origin, cells)
            elif len(cells) != len(header):
                yield bad_row(origin, _wrong_number(cells, header))
            else:
                image, text = (cells[column] for column in columns)
                yield row_from_csv(origin, image, text, prompt, system_prompt)


def _find_columns(path: Path, header: Sequence[str]) -> list[int]:
    """Where the columns of `CSV_COLUMNS` stand, each of which the first line must name once."""
    wrong = wrong_columns(header)
    if wrong:
        message = f"{path}:1: {wrong}"
        raise StageConfigError(message)
    return [header.index(name) for name in CSV_COLUMNS]


def _wrong_number(cells: Sequence[str], header: Sequence[str]) -> str:
    found = f"{len(cells)} cells, the first line names {len(header)} columns"
    hint = '; put a text that has commas in double quotes: "a dog, running"'
    return found + (hint if len(cells) > len(header) else "")


def _csv_records(
    reader: _CsvReader, lines: _Lines, path: Path
) -> Iterator[tuple[int, list[str] | str]]:
    """The cells of each record, or what is wrong with it; and the line where it begins, from 1."""
    line = 1
    while True:
        found = _next_record(reader, lines, path, line)
        if found is None:
            return
        yield line, found
        line = reader.line_num + 1


def _next_record(
    reader: _CsvReader, lines: _Lines, path: Path, line: int
) -> list[str] | str | None:
    """The next record; None at the end. A wrong one whose quotes are even is over with its line."""
    try:
        return next(reader, None)
    except UnicodeDecodeError as error:  # a whole block is decoded at a time: the reader is behind
        at, problem = _first_undecodable_line(path)
        message = f"{path}:{at}: no UTF-8 ({problem}); save the manifest as UTF-8"
        raise StageConfigError(message) from error
    except csv.Error as error:
        # With an odd quote, or over lines, nobody can tell which rows an open quote has swallowed.
        if reader.line_num == line and lines.last.count('"') % 2 == 0:
            return f"no CSV ({error})"
        message = (
            f"{path}:{line}: the row that begins here is no CSV ({error} at line "
            f"{reader.line_num}); a double quote that opens a text must be closed, and one within "
            f"it written twice"
        )
        raise StageConfigError(message) from error


def _first_undecodable_line(path: Path) -> tuple[int, str]:
    """Number of the first line that is no UTF-8, from 1, and what is wrong with it."""
    with path.open("rb") as stream:
        for line_index, line in enumerate(stream):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return line_index + 1, f"byte 0x{line[error.start]:02x}: {error.reason}"
    message = f"{path} was changed while it was read"
    raise StageConfigError(message)


def _read_json_lines(path: Path) -> Iterator[ManifestRow]:
    with path.open("rb") as stream:
        row = 0
        for line_index, line in enumerate(stream):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if not text:
                continue
            yield _row_from_line(RowOrigin(row=row, line=line_index + 1, manifest=path), text)
            row += 1


def _row_from_line(origin: RowOrigin, text: bytes) -> ManifestRow:
    try:
        return _row_from_json(origin, json.loads(text))
    except ValueError as error:
        return bad_row(origin, f"no valid JSON ({error})")
    except RecursionError:
        return bad_row(origin, _TOO_DEEP)


def _read_json_list(path: Path) -> Iterator[ManifestRow]:
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        message = f"{path}: starts like a JSON list but is not valid JSON ({error})"
        raise StageConfigError(message) from error
    except RecursionError as error:
        message = f"{path}: {_TOO_DEEP}; as JSON lines only the row at fault would be left out"
        raise StageConfigError(message) from error
    for row, value in enumerate(values):
        yield _row_from_json(RowOrigin(row=row, line=None, manifest=path), value)


def _row_from_json(origin: RowOrigin, value: object) -> ManifestRow:
    try:
        if isinstance(value, dict) and "messages" in value:
            return row_from_chat(origin, value)
        if isinstance(value, dict) and "conversations" in value:
            return row_from_conversations(origin, value)
    except RecursionError:  # printing what was only just parsed
        return bad_row(origin, _TOO_DEEP)
    return bad_row(origin, "neither `messages` nor `conversations`")
