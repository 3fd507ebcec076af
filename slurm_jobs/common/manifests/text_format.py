"""Blocks of a text manifest, and the interface of each text format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from slurm_jobs.common.manifests.rows import ManifestRow

BLOCK_BYTES = 4 * 1024 * 1024
"""Smallest size of a block; a slice parses at most this much before its first row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Run of whole rows, as a format finds it in a file."""

    offset: int
    data: bytes
    num_rows: int
    line: int
    """Line of its first byte, from 1."""
    header: tuple[str, ...] = ()
    """Names of columns, if the format has them; only in the first block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Run of whole rows, in the index."""

    first_row: int
    num_rows: int
    offset: int
    num_bytes: int
    line: int
    xxh3: int


class TextFormat(Protocol):
    """Parser of a format: bounds of rows, and their content."""

    path: Path

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield the blocks of the file in order; raise StageConfigError if it has another format.

        `stream` is the file at `path`.
        """
        ...

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """Yield the rows of a block."""
        ...
