"""Text manifests, in blocks of some megabytes that end at a row end.

One pass over the file finds the blocks, counts their rows and computes their checksums. That
index is stored, so a slice of a thousand reads only its own blocks, and verifies that each has
the bytes that were counted.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from pipeline.preprocess.file_facts import KeptFile, facts_of, kept_file
from pipeline.preprocess.manifests.interface import changed
from slurm_jobs.formats.manifests.bounded_lines import long_row_problem
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.formats.manifests.text import BLOCK_BYTES, Block, TextFormat

_WORTH_KEEPING_BYTES = 16 * 1024 * 1024
"""A smaller file is scanned faster than its index is loaded."""
_INDEX_FORMAT = "slurm-jobs-text-index-2"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Index:
    fingerprint: str
    num_rows: int
    header: tuple[str, ...]
    blocks: tuple[Block, ...]


class TextManifest:
    """Manifest of text; `fingerprint` is xxh3-64 of the file."""

    def __init__(
        self, text_format: TextFormat, *, limit: int | None, index_dir: Path | None
    ) -> None:
        """Scan the file, or load its stored index.

        Raises:
            StageConfigError: it is not of its format.
        """
        self.path = path = text_format.path
        self._format = text_format
        self._facts = facts_of(path)
        keep_in = index_dir if self._facts.num_bytes >= _WORTH_KEEPING_BYTES else None
        about = f"{type(text_format).__name__} 2 {limit}"
        self._kept = kept_file(keep_in, "manifest", [self._facts], about=about)
        index = _load(self._kept)
        if index is None:
            index = _make_index(text_format, limit)
            values = {
                "format": _INDEX_FORMAT,
                "fingerprint": index.fingerprint,
                "num_rows": index.num_rows,
                "header": index.header,
                "blocks": [astuple(block) for block in index.blocks],
            }
            self._kept.save_checked(json.dumps(values).encode())
        self._index = index
        self.fingerprint = self._index.fingerprint
        self.num_rows = self._index.num_rows

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers (`Manifest.rows`)."""
        blocks = self._index.blocks
        first = max(0, bisect_right(blocks, wanted.start, key=lambda block: block.first_row) - 1)
        with _open(self.path) as stream:
            for block in blocks[first:]:
                if block.first_row >= wanted.stop:
                    return
                if block.first_row + block.num_rows <= wanted.start:
                    continue
                stream.seek(block.offset)
                data = stream.read(block.num_bytes)
                if xxhash.xxh3_64_intdigest(data) != block.xxh3:
                    self._kept.remove()
                    cause = f"the bytes at {block.offset} differ from those that were counted"
                    raise changed(self.path, cause)
                if block.long_bytes:
                    origin = RowOrigin(
                        row=block.first_row, line=block.line or None, manifest=self.path
                    )
                    yield bad_row(origin, long_row_problem(block.long_bytes))
                    continue
                for row in self._format.parse(data, block, self._index.header):
                    if row.origin.row in wanted:
                        yield row

    def fingerprint_now(self) -> str | None:
        """Return the current fingerprint; the file is read again only if its times have changed."""
        try:
            if facts_of(self.path) == self._facts:
                return self.fingerprint
            with self.path.open("rb") as stream:
                return _hash_rest(stream, xxhash.xxh3_64())
        except OSError:
            return None


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise changed(path, "the file no longer exists") from error


def _make_index(text_format: TextFormat, limit: int | None) -> _Index:
    digest = xxhash.xxh3_64()
    blocks: list[Block] = []
    header: tuple[str, ...] = ()
    num_rows = 0
    with text_format.path.open("rb", buffering=0) as file:
        stream = io.BufferedReader(_Hashing(file, digest), 1 << 20)
        for record in text_format.find(stream):
            header = header or record.header
            if record.num_rows:
                block = Block(
                    first_row=num_rows,
                    num_rows=record.num_rows,
                    offset=record.offset,
                    num_bytes=len(record.data),
                    line=record.line,
                    xxh3=xxhash.xxh3_64_intdigest(record.data),
                    long_bytes=record.long_bytes,
                )
                blocks.append(block)
                num_rows += record.num_rows
            if limit is not None and num_rows >= limit:
                num_rows = limit
                break
        fingerprint = _hash_rest(file, digest)
    return _Index(fingerprint=fingerprint, num_rows=num_rows, header=header, blocks=tuple(blocks))


class _Hashing(io.RawIOBase):
    """File whose bytes update a digest as they are read, each once and in order."""

    def __init__(self, file: io.FileIO, digest: xxhash.xxh3_64) -> None:
        self._file = file
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        num_bytes = self._file.readinto(buffer)
        self._digest.update(memoryview(buffer)[:num_bytes])
        return num_bytes


def _hash_rest(stream: IO[bytes], digest: xxhash.xxh3_64) -> str:
    while data := stream.read(BLOCK_BYTES):
        digest.update(data)
    return digest.hexdigest()


def _load(kept: KeptFile) -> _Index | None:
    data = kept.load_checked()
    values = json.loads(data) if data is not None else {}
    if values.get("format") != _INDEX_FORMAT:
        return None
    names = Block.__slots__
    return _Index(
        fingerprint=values["fingerprint"],
        num_rows=values["num_rows"],
        header=tuple(values["header"]),
        blocks=tuple(Block(**dict(zip(names, row, strict=True))) for row in values["blocks"]),
    )
