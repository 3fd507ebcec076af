"""The task of a peer, and the bytes that every peer's format is built from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

RAW, DECODED, ARRAYS = "raw", "decoded", "arrays"
"""JPEG bytes, decoded JPEGs, and arrays that need no decoding."""
BATCH_SIZES = {RAW: 64, DECODED: 16, ARRAYS: 64}
NUM_SHARDS = 8
"""Approximate number of shards of every sharded format; enough to share between workers."""
SEED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One way to read one set."""

    kind: str
    is_shuffled: bool
    num_workers: int
    """Worker processes, or threads for ours; 0 reads in the training process."""

    @property
    def batch_size(self) -> int:
        """Number of samples in a batch."""
        return BATCH_SIZES[self.kind]

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        return json.dumps(asdict(self))


Pass = Callable[[], Iterator[int]]
"""A function that reads a set once and yields the number of samples of each batch."""


class Peer(Protocol):
    """Interface of the modules of this package."""

    NAME: str
    NEEDS: str
    """The module to import."""
    PACKAGE: str
    """The package whose version is reported."""

    def build(self, source: Source, folder: Path) -> None:
        """Write the set in the peer's format."""

    def open_pass(self, folder: Path, job: Job) -> Pass:
        """Open the set; workers start once and persist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The bytes that every peer's format is built from: one file of concatenated samples."""

    folder: Path
    kind: str

    @property
    def path(self) -> Path:
        """The file of all samples, without separators."""
        return self.folder / f"{self.kind}.bin"

    @property
    def lengths(self) -> np.ndarray:
        """int64 [num_samples]."""
        return np.load(self.folder / f"{self.kind}.lengths.npy")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, 3) of every image."""
        height, width, depth = np.load(self.folder / f"{self.kind}.shape.npy").tolist()
        return height, width, depth

    @property
    def shard_bytes(self) -> int:
        """Size of a shard that gives `NUM_SHARDS` shards."""
        return self.path.stat().st_size // NUM_SHARDS

    def samples(self) -> Iterator[bytes]:
        """Yield the bytes of each sample: a JPEG file, or pixels."""
        with self.path.open("rb") as stream:
            for length in self.lengths.tolist():
                yield stream.read(length)

    def write(self, samples: Iterator[Any], shape: tuple[int, int, int]) -> None:
        """Write the samples, their lengths and their shape."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb") as stream:
            lengths = [stream.write(data) for data in samples]
        np.save(self.folder / f"{self.kind}.lengths.npy", np.asarray(lengths, dtype=np.int64))
        np.save(self.folder / f"{self.kind}.shape.npy", np.asarray(shape))


def decode(data: Any) -> np.ndarray:
    """Decode a JPEG to uint8 [height, width, 3] with Pillow, as all peers do."""
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)))
