"""One file per sample, read by a map-style data set through torch's DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, Job, Pass, Source, decode
from benchmarks.peers.loading import loader_pass

NAME = "files, DataLoader"
NEEDS = "torch"
PACKAGE = "torch"


class _Files:
    def __init__(self, folder: Path, kind: str) -> None:
        self._paths = sorted(str(path) for path in folder.iterdir())
        self._kind = kind

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Any:
        path = self._paths[number]
        if self._kind == ARRAYS:
            return np.load(path)
        with open(path, "rb") as stream:  # noqa: PTH123 - as quick as it gets
            data = stream.read()
        return decode(data) if self._kind == DECODED else data


def build(source: Source, folder: Path) -> None:
    """Write a JPEG or `.npy` file per sample."""
    for number, data in enumerate(source.samples()):
        if source.kind == ARRAYS:
            np.save(
                folder / f"{number:06d}.npy", np.frombuffer(data, np.uint8).reshape(source.shape)
            )
        else:
            (folder / f"{number:06d}.jpg").write_bytes(data)


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    return loader_pass(_Files(folder, job.kind), job)
