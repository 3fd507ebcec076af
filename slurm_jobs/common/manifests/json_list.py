"""LLaVA's JSON: one list of rows. It is parsed whole once; later each block is parsed alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.rows import ManifestRow, RowOrigin
from slurm_jobs.common.manifests.text_format import BLOCK_BYTES, Block, Found
from slurm_jobs.common.manifests.values import TOO_DEEP, RowOptions, read_row

_BOM = b"\xef\xbb\xbf"
_BLANK = re.compile(r"[ \t\n\r]*")


class JsonList:
    """Format of one JSON list."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield blocks of whole elements, including the commas between them.

        Raises:
            StageConfigError: the JSON is invalid anywhere.
        """
        data = stream.read()
        try:
            text = data.removeprefix(_BOM).decode("utf-8")
            offset, place = len(data) - len(data.removeprefix(_BOM)), 0
            for start, end, num_rows in _runs(text):
                offset += len(text[place:start].encode())
                block = text[start:end].encode()
                yield Found(offset=offset, data=block, num_rows=num_rows, line=1)
                offset, place = offset + len(block), end
        except ValueError as error:
            message = f"{self.path}: starts like a JSON list but is not valid JSON ({error})"
            raise StageConfigError(message) from error
        except RecursionError as error:
            raise _too_deep(self.path) from error

    def parse(
        self, data: bytes, block: Block, _header: tuple[str, ...], /
    ) -> Iterator[ManifestRow]:
        """Yield the rows of a block."""
        try:
            values = json.loads(b"[" + data + b"]")
        except RecursionError as error:
            raise _too_deep(self.path) from error
        for row, value in enumerate(values, start=block.first_row):
            origin = RowOrigin(row=row, line=None, manifest=self.path)
            yield read_row(origin, value, self._options)


def _too_deep(path: Path) -> StageConfigError:
    return StageConfigError(
        f"{path}: {TOO_DEEP}; as JSON lines only the row at fault would be left out"
    )


def _runs(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of elements of each run.

    Raises:
        ValueError: the text is no list; the message is that of `json`.
    """
    decoder = json.JSONDecoder()
    place = _skip(text, _skip(text, 0) + 1)
    if text[place : place + 1] == "]":
        _check_end(text, place)
        return
    start, num_rows = place, 0
    while True:
        try:
            _, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            json.loads(text)  # raises with the error of the whole list
            raise
        num_rows += 1
        place = _skip(text, end)
        mark = text[place : place + 1]
        if mark == "]":
            yield start, end, num_rows
            _check_end(text, place)
            return
        if mark != ",":
            json.loads(text)
        place = _skip(text, place + 1)
        if end - start >= BLOCK_BYTES:
            yield start, end, num_rows
            start, num_rows = place, 0


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _check_end(text: str, place: int) -> None:
    if _skip(text, place + 1) != len(text):
        json.loads(text)
