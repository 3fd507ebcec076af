"""Blocks of a text manifest, and what each format of text implements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from slurm_jobs.common.manifests.rows import ManifestRow

BLOCK_BYTES = 4 * 1024 * 1024
"""Least size of a block; a slice parses at most so much before its first row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A run of whole rows, as a format finds it in a file."""

    offset: int
    data: bytes
    num_rows: int
    line: int
    """Of its first byte, from 1."""
    header: tuple[str, ...] = ()
    """Names of columns, where the format has them; in the first block alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A run of whole rows, in the index."""

    first_row: int
    num_rows: int
    offset: int
    num_bytes: int
    line: int
    xxh3: int


class TextFormat(Protocol):
    """Where rows begin and end, and what they say."""

    path: Path

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """The blocks of the file, in order; raises StageConfigError where it is not of the format.

        `stream` is the file at `path`.
        """
        ...

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """The rows of a block."""
        ...
