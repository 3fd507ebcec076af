"""Hugging Face `datasets`: Arrow files on disk, memory-mapped, in a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, Job, Pass, Source, decode
from benchmarks.peers.loading import loader_pass

NAME = "datasets"
NEEDS = "datasets"
PACKAGE = "datasets"


def build(source: Source, folder: Path) -> None:
    """Write with `from_generator` and `save_to_disk`."""
    import datasets

    def rows() -> Iterator[dict[str, bytes]]:
        for data in source.samples():
            yield {"image": data}

    # Store pixels as bytes, too: reading `Array3D` takes 14 ms per image, bytes 0.1 ms.
    features = datasets.Features({"image": datasets.Value("binary")})
    dataset = datasets.Dataset.from_generator(
        rows, features=features, cache_dir=str(folder / "cache")
    )
    dataset.save_to_disk(str(folder / "set"))
    np.save(folder / "shape.npy", np.asarray(source.shape))


class _Images:
    """The column `image`; a DataLoader calls `__getitems__` to get many rows at once."""

    def __init__(self, folder: Path, kind: str) -> None:
        import datasets

        self._rows = datasets.load_from_disk(str(folder / "set"))
        self._shape = tuple(np.load(folder / "shape.npy").tolist())
        self._kind = kind

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        stored = self._rows[numbers]["image"]
        if self._kind == DECODED:
            return [decode(data) for data in stored]
        if self._kind == ARRAYS:
            return [np.frombuffer(data, np.uint8).reshape(self._shape) for data in stored]
        return list(stored)


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    return loader_pass(_Images(folder, job.kind), job)
