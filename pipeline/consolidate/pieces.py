"""A piece: what one array task of `consolidate` leaves for the one that finishes the data set.

`pieces/piece-00003-of-00016.npy` holds the index rows of the task's shards, and
`piece-00003-of-00016.json`, written last, says which shards they are and of which dealing. A
dealing is all that decides where each sample goes and what its bytes are: pieces of another one,
or of another number of tasks, are as good as none.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.index import INDEX_ROW
from pipeline.data.info import ShardInfo
from slurm_jobs.common.errors import StageError
from slurm_jobs.common.files import write_json_atomic

PIECES_DIR = "pieces"
_FORMAT = "slurm-jobs-piece-1"
_BLOCK_ROWS = 1 << 18
"""Rows that are read at a time: 14 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PiecePaths:
    """Where the files of a piece lie."""

    output_dir: Path
    """Of the stage `consolidate`."""
    slice_index: int
    num_slices: int

    @property
    def _stem(self) -> str:
        return f"piece-{self.slice_index:05d}-of-{self.num_slices:05d}"

    @property
    def rows(self) -> Path:
        """Index rows: an array of `INDEX_ROW`."""
        return self.output_dir / PIECES_DIR / f"{self._stem}.npy"

    @property
    def info(self) -> Path:
        """What the piece holds; the proof that its shards are whole."""
        return self.output_dir / PIECES_DIR / f"{self._stem}.json"

    @property
    def workplace(self) -> Path:
        """A folder of this task's own, whose files it moves to where they belong."""
        return self.output_dir / PIECES_DIR / f"work-{self.slice_index:05d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """The content of a piece's `.json`."""

    dealing: str
    num_samples: int
    num_tokens: int
    num_images: int
    rows_xxh3: str
    """xxh3-64 of the index rows, in hexadecimal."""
    shards: tuple[ShardInfo, ...]


class PieceRows:
    """Writes the index rows of a piece into `stream`, and counts what is in them."""

    def __init__(self, stream: IO[bytes], num_rows: int) -> None:
        self._stream = stream
        self._digest = xxhash.xxh3_64()
        self._num_tokens = self._num_images = 0
        self._num_rows = num_rows
        header = {"descr": INDEX_ROW.descr, "fortran_order": False, "shape": (num_rows,)}
        np.lib.format.write_array_header_1_0(stream, header)

    def append(self, rows: np.ndarray) -> None:
        """Write the next rows, `INDEX_ROW`."""
        data = rows.tobytes()
        self._stream.write(data)
        self._digest.update(data)
        self._num_tokens += int(rows["num_tokens"].sum())
        self._num_images += int(rows["num_images"].sum())

    def finish(self, dealing: str, shards: tuple[ShardInfo, ...]) -> Piece:
        """What is in the piece."""
        return Piece(
            dealing=dealing,
            num_samples=self._num_rows,
            num_tokens=self._num_tokens,
            num_images=self._num_images,
            rows_xxh3=self._digest.hexdigest(),
            shards=shards,
        )


def write_piece(paths: PiecePaths, piece: Piece) -> None:
    """Write a piece's `.json`; its shards and rows are there."""
    write_json_atomic(paths.info, {"format": _FORMAT, **dataclasses.asdict(piece)})


def read_piece(paths: PiecePaths, dealing: str) -> Piece | None:
    """The piece, if it is there and of this dealing.

    Raises:
        StageError: it is damaged.
    """
    try:
        values: dict[str, Any] = json.loads(paths.info.read_bytes())
        if values.pop("format") != _FORMAT or values["dealing"] != dealing:
            return None
        shards = tuple(ShardInfo(**shard) for shard in values["shards"])
        return Piece(**{**values, "shards": shards})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        message = f"{paths.info}: damaged ({error!r}); {_remedy(paths)}"
        raise StageError(message) from error


def remove_other_pieces(paths: PiecePaths, dealing: str) -> None:
    """Remove what proves shards of another dealing, before one of them is written over.

    Else the other dealing, asked for again, would take what its own earlier tasks have proved
    though the shards are of this one. Damaged files stay: who needs them says so.
    """
    for path in paths.info.parent.glob("piece-*.json"):
        try:
            other = json.loads(path.read_bytes())["dealing"]
        except (FileNotFoundError, ValueError, TypeError, LookupError):
            continue
        if other != dealing:
            path.unlink(missing_ok=True)


def _remedy(paths: PiecePaths) -> str:
    return (
        f"consolidate slice {paths.slice_index} again (`resume --again STAGE:{paths.slice_index}`)"
    )


def read_pieces(paths: Sequence[PiecePaths], dealing: str) -> list[Piece] | None:
    """All pieces of a dealing; None while one is missing.

    A task looks after it wrote its own: then of those that end at the same time one sees all,
    because a client of NFS that has just changed a folder asks the server what is in it.
    """
    found = []
    for path in paths:
        piece = read_piece(path, dealing)
        if piece is None:
            return None
        found.append(piece)
    return found


def iter_rows(paths: PiecePaths, piece: Piece) -> Iterator[np.ndarray]:
    """The index rows of a piece, block by block.

    Raises:
        StageError: they are not what the piece says.
    """
    digest = xxhash.xxh3_64()
    try:
        stream = paths.rows.open("rb")
    except FileNotFoundError as error:
        message = f"{paths.rows}: missing; {_remedy(paths)}"
        raise StageError(message) from error
    with stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - piece.num_samples * INDEX_ROW.itemsize))
        while data := stream.read(_BLOCK_ROWS * INDEX_ROW.itemsize):
            digest.update(data)
            yield np.frombuffer(data, INDEX_ROW, count=len(data) // INDEX_ROW.itemsize)
    if digest.hexdigest() != piece.rows_xxh3:
        message = f"{paths.rows}: does not match its checksum; {_remedy(paths)}"
        raise StageError(message)
