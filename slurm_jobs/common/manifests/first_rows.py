"""First rows of a text manifest, read from its beginning by the parser of the job."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.csv_file import CsvFile
from slurm_jobs.common.manifests.json_lines import JsonLines
from slurm_jobs.common.manifests.json_list import JsonList
from slurm_jobs.common.manifests.rows import ManifestRow, RowOrigin
from slurm_jobs.common.manifests.text_format import Block
from slurm_jobs.common.manifests.values import RowOptions, read_row

MAX_ROWS = 1000
MAX_BYTES = 2 * 1024 * 1024
"""Bytes read from a manifest."""
_BOM = b"\xef\xbb\xbf"
_BETWEEN = " \t\r\n,"


def first_rows(path: Path, options: RowOptions) -> list[ManifestRow]:
    """Return at most `MAX_ROWS` rows; fewer where the file or its beginning is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    is_whole = len(data) <= MAX_BYTES
    if not is_whole:
        data = data[:MAX_BYTES]
    rows: list[ManifestRow] = []
    try:
        rows.extend(itertools.islice(_rows(path, data, options, is_whole=is_whole), MAX_ROWS))
    except StageConfigError:  # the job reports the place and kind of the damage
        return rows
    return rows


def manifest_damage(path: Path, options: RowOptions) -> str:
    """Return why a text manifest of at most `MAX_BYTES` cannot be read completely; else "".

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
        start = data.removeprefix(_BOM).lstrip()[:1]
        is_csv = path.suffix.lower() == ".csv"
        if len(data) > MAX_BYTES or not start or not (is_csv or start == b"["):
            return ""  # blank; or JSON lines, of which a damaged one is a bad row
        stream.seek(0)
        text_format = CsvFile(path, options) if is_csv else JsonList(path, options)
        try:
            for _ in text_format.find(stream):
                pass
        except StageConfigError as error:
            return str(error).removeprefix(f"{path}")
    return ""


def _rows(path: Path, data: bytes, options: RowOptions, *, is_whole: bool) -> Iterator[ManifestRow]:
    start = data.removeprefix(_BOM).lstrip()[:1]
    if path.suffix.lower() != ".csv" and start == b"[":
        for number, value in enumerate(_elements(data)):
            yield read_row(RowOrigin(row=number, line=None, manifest=path), value, options)
        return
    lines = data if is_whole else data[: data.rfind(b"\n") + 1]
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(CsvFile(path, options), lines)
    elif start == b"{":
        yield from JsonLines(path, options).parse(lines, _block(line=1), ())


def _csv_rows(text_format: CsvFile, data: bytes) -> Iterator[ManifestRow]:
    header, line, num_bytes = text_format.read_header(io.BytesIO(data))
    yield from text_format.parse(data[num_bytes:], _block(line=line), header)


def _block(*, line: int) -> Block:
    return Block(first_row=0, num_rows=0, offset=0, num_bytes=0, line=line, xxh3=0)


def _elements(data: bytes) -> Iterator[Any]:
    """Yield the values of a JSON list, up to the first that is damaged or truncated."""
    text = data.decode("utf-8-sig", errors="replace")
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    while True:
        while place < len(text) and text[place] in _BETWEEN:
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield value
