"""Pieces: the output of one array task of `consolidate` for the task that finishes the data set.

`pieces/piece-00003-of-00016.npy` holds the index rows of the task's shards, and
`piece-00003-of-00016.json`, written last, names the shards and their dealing. A dealing is
everything that determines the position and the bytes of each sample: pieces of another one, or
of another number of tasks, are not used.
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

from pipeline.data.disk_format.dataset_info import ShardInfo
from pipeline.data.disk_format.index import INDEX_ROW
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.regular_files import read_bytes

PIECES_DIR = "pieces"
_FORMAT = "slurm-jobs-piece-1"
_BLOCK_ROWS = 1 << 18
"""Rows that are read at a time: 14 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PiecePaths:
    """Paths of the files of a piece."""

    output_dir: Path
    """Output folder of the stage `consolidate`."""
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
        """Content of the piece; proof that its shards are complete."""
        return self.output_dir / PIECES_DIR / f"{self._stem}.json"

    @property
    def work_dir(self) -> Path:
        """Temporary folder of this task, from which it moves files to their places."""
        return self.output_dir / PIECES_DIR / f"work-{self.slice_index:05d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Content of a piece's `.json`."""

    dealing: str
    num_samples: int
    num_tokens: int
    num_images: int
    rows_xxh3: str
    """xxh3-64 of the index rows, in hexadecimal."""
    shards: tuple[ShardInfo, ...]


class PieceRows:
    """Writes the index rows of a piece into `stream`, and counts their contents."""

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
        """Return the record of the piece."""
        return Piece(
            dealing=dealing,
            num_samples=self._num_rows,
            num_tokens=self._num_tokens,
            num_images=self._num_images,
            rows_xxh3=self._digest.hexdigest(),
            shards=shards,
        )


def write_piece(paths: PiecePaths, piece: Piece) -> None:
    """Write a piece's `.json`; its shards and rows exist already."""
    write_json_atomic(paths.info, {"format": _FORMAT, **dataclasses.asdict(piece)})


def remove_other_pieces(paths: PiecePaths, dealing: str) -> None:
    """Remove the proofs of another dealing's shards before one of these is overwritten.

    Otherwise the other dealing, if requested again, would trust the proofs of its earlier tasks
    although the shards are of this one. Damaged files stay: their reader reports them.
    """
    for path in paths.info.parent.glob("piece-*.json"):
        try:
            other = json.loads(read_bytes(path))["dealing"]
        except (FileNotFoundError, ValueError, TypeError, LookupError):
            continue
        if other != dealing:
            path.unlink(missing_ok=True)


def _remedy(paths: PiecePaths) -> str:
    return (
        f"consolidate slice {paths.slice_index} again (`resume --again STAGE:{paths.slice_index}`)"
    )


def read_pieces(paths: Sequence[PiecePaths], dealing: str) -> list[Piece] | None:
    """Return all pieces of a dealing; None while one is missing.

    A task checks after writing its own piece. Of tasks that end at the same time at least one
    sees all pieces, because an NFS client that has just changed a folder lists it on the server.

    Raises:
        StageError: one is damaged.
    """
    pieces = []
    for path in paths:
        try:
            values: dict[str, Any] = json.loads(read_bytes(path.info))
            if values.pop("format") != _FORMAT or values["dealing"] != dealing:
                return None
            shards = tuple(ShardInfo(**shard) for shard in values["shards"])
            pieces.append(Piece(**{**values, "shards": shards}))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            message = f"{path.info}: damaged ({error!r}); {_remedy(path)}"
            raise StageError(message) from error
    return pieces


def iter_rows(paths: PiecePaths, piece: Piece) -> Iterator[np.ndarray]:
    """Yield the index rows of a piece, block by block.

    Raises:
        StageError: they do not match the piece.
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
