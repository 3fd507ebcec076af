"""JSON lines: one row in each line; blank lines are skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from slurm_jobs.common.manifests.rows import ManifestRow, RowOrigin, bad_row
from slurm_jobs.common.manifests.text_format import BLOCK_BYTES, Block, Found
from slurm_jobs.common.manifests.values import TOO_DEEP, RowOptions, read_row

_BOM = b"\xef\xbb\xbf"


class JsonLines:
    """Format JSON lines."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield blocks of whole lines."""
        offset, line = 0, 1
        while lines := stream.readlines(BLOCK_BYTES):
            num_blank = sum(map(bytes.isspace, lines))
            data = b"".join(lines)
            if _BOM in data:
                num_blank = sum(not _content(text) for text in lines)
            yield Found(offset=offset, data=data, num_rows=len(lines) - num_blank, line=line)
            offset, line = offset + len(data), line + len(lines)

    def parse(
        self, data: bytes, block: Block, _header: tuple[str, ...], /
    ) -> Iterator[ManifestRow]:
        """Yield the rows of a block; a line that is not JSON is a bad row."""
        row = block.first_row
        for index, line in enumerate(data.split(b"\n")):
            text = _content(line)
            if text:
                origin = RowOrigin(row=row, line=block.line + index, manifest=self.path)
                yield _row(origin, text, self._options)
                row += 1


def _content(line: bytes) -> bytes:
    return line.removeprefix(_BOM).strip()


def _row(origin: RowOrigin, text: bytes, options: RowOptions) -> ManifestRow:
    try:
        return read_row(origin, json.loads(text), options)
    except ValueError as error:
        return bad_row(origin, f"no valid JSON ({error})")
    except RecursionError:
        return bad_row(origin, TOO_DEEP)
