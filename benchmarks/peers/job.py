"""What a peer is asked to read, and what every peer is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

RAW, DECODED, ARRAYS = "raw", "decoded", "arrays"
"""Kinds: JPEG bytes as they are, the same decoded, arrays that need no decoding."""
BATCH_SIZES = {RAW: 64, DECODED: 16, ARRAYS: 64}
NUM_SHARDS = 8
"""About as many of each format that has any: enough for the workers to share."""
SEED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One way to read one set."""

    kind: str
    is_shuffled: bool
    num_workers: int
    """Processes beside the one that trains; 0 reads in that one. Of ours: threads."""

    @property
    def batch_size(self) -> int:
        """Samples that are delivered together."""
        return BATCH_SIZES[self.kind]

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


Pass = Callable[[], Iterator[int]]
"""Reads a set once, and yields the number of samples of each delivery."""


class Peer(Protocol):
    """What a module of this package has."""

    NAME: str
    NEEDS: str
    """The module to import."""
    PACKAGE: str
    """Whose version is told."""

    def build(self, source: Source, folder: Path) -> None:
        """Write the set in the peer's format."""

    def open_pass(self, folder: Path, job: Job) -> Pass:
        """Open the set; workers are started once and kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The bytes that every peer's format is built from; one file, one sample after the other."""

    folder: Path
    kind: str

    @property
    def path(self) -> Path:
        """All samples without anything between them."""
        return self.folder / f"{self.kind}.bin"

    @property
    def lengths(self) -> np.ndarray:
        """int64 [num_samples]."""
        return np.load(self.folder / f"{self.kind}.lengths.npy")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, 3) of every picture."""
        height, width, depth = np.load(self.folder / f"{self.kind}.shape.npy").tolist()
        return height, width, depth

    @property
    def shard_bytes(self) -> int:
        """Of a shard, so that there are `NUM_SHARDS`."""
        return self.path.stat().st_size // NUM_SHARDS

    def samples(self) -> Iterator[bytes]:
        """The bytes of each sample: a JPEG file, or pixels."""
        with self.path.open("rb") as stream:
            for length in self.lengths.tolist():
                yield stream.read(length)

    def write(self, samples: Iterator[Any], shape: tuple[int, int, int]) -> None:
        """Keep what `samples` gives."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb") as stream:
            lengths = [stream.write(data) for data in samples]
        np.save(self.folder / f"{self.kind}.lengths.npy", np.asarray(lengths, dtype=np.int64))
        np.save(self.folder / f"{self.kind}.shape.npy", np.asarray(shape))


def decode(data: Any) -> np.ndarray:
    """A JPEG as uint8 [height, width, 3], by Pillow, as all peers decode."""
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)))
