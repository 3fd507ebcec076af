"""Manifests to rows: CSV, JSON lines with chat `messages`, and LLaVA's JSON.

Rows are numbered over the whole manifest, so that neither a row's key nor its
part of the data set depends on how the manifest is cut into slices. A row that
cannot be understood stays in the list with its `problem`: one bad line of a
million is a reject, not the end of the stage.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.preprocess.manifest_rows import (
    ManifestRow,
    RowOrigin,
    bad_row,
    row_from_chat,
    row_from_conversations,
    row_from_csv,
)
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.preprocess import DEFAULT_PROMPT

if TYPE_CHECKING:
    from _csv import Reader as _CsvReader

CSV_COLUMNS = ("image_path", "text")


def slice_range(num_rows: int, slice_index: int, num_slices: int) -> range:
    """The rows of one slice; over all slices every row once, sizes within one of each other."""
    start = slice_index * num_rows // num_slices
    return range(start, (slice_index + 1) * num_rows // num_slices)


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
        StageConfigError: the file is missing, empty, of no known format, or no
            longer of its format somewhere (CSV).
    """
    if not path.is_file():
        message = f"{path}: no such manifest; give the path of a CSV, JSONL or JSON file"
        raise StageConfigError(message)
    if path.suffix.lower() == ".csv":
        rows = _read_csv(path, prompt, system_prompt)
    elif _first_byte(path) == b"[":
        rows = _read_json_list(path)
    elif _first_byte(path) == b"{":
        rows = _read_json_lines(path)
    else:
        message = (
            f"{path}: neither a `.csv` file, nor JSON lines (first character `{{`), nor a JSON "
            f"list (`[`)"
        )
        raise StageConfigError(message)
    return itertools.islice(rows, limit)


def _first_byte(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


def _read_csv(path: Path, prompt: str, system_prompt: str) -> Iterator[ManifestRow]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        lines = _csv_lines(reader, path)
        header = next(lines, [])
        missing = [name for name in CSV_COLUMNS if name not in header]
        if missing:
            message = (
                f"{path}:1: column {', '.join(missing)} missing; the first line must name the "
                f"columns `image_path` and `text`, found: {', '.join(header) or 'nothing'}"
            )
            raise StageConfigError(message)
        columns = [header.index(name) for name in CSV_COLUMNS]
        row, line = 0, reader.line_num + 1
        for cells in lines:
            if cells:  # csv gives [] for an empty line
                origin = RowOrigin(row=row, line=line, manifest=path)
                if len(cells) <= max(columns):
                    yield bad_row(origin, f"{len(cells)} columns, expected {len(header)}")
                else:
                    image, text = (cells[column] for column in columns)
                    yield row_from_csv(origin, image, text, prompt, system_prompt)
                row += 1
            line = reader.line_num + 1


def _csv_lines(reader: _CsvReader, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except (csv.Error, UnicodeDecodeError) as error:
        message = f"{path}: after line {reader.line_num}: no UTF-8 or no CSV ({error})"
        raise StageConfigError(message) from error


def _read_json_lines(path: Path) -> Iterator[ManifestRow]:
    with path.open("rb") as stream:
        row = 0
        for line_index, line in enumerate(stream):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if not text:
                continue
            origin = RowOrigin(row=row, line=line_index + 1, manifest=path)
            row += 1
            try:
                value = json.loads(text)
            except ValueError as error:
                yield bad_row(origin, f"no valid JSON ({error})")
                continue
            yield _row_from_json(origin, value)


def _read_json_list(path: Path) -> Iterator[ManifestRow]:
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        message = f"{path}: starts like a JSON list but is not valid JSON ({error})"
        raise StageConfigError(message) from error
    for row, value in enumerate(values):
        yield _row_from_json(RowOrigin(row=row, line=None, manifest=path), value)


def _row_from_json(origin: RowOrigin, value: object) -> ManifestRow:
    if isinstance(value, dict) and "messages" in value:
        return row_from_chat(origin, value)
    if isinstance(value, dict) and "conversations" in value:
        return row_from_conversations(origin, value)
    return bad_row(origin, "neither `messages` nor `conversations`")
