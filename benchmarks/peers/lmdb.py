"""LMDB: one key per sample, opened read-only without locks, in a DataLoader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, Job, Pass, Source, decode
from benchmarks.peers.loading import loader_pass

NAME = "LMDB"
NEEDS = "lmdb"
PACKAGE = "lmdb"
_KEY = struct.Struct(">Q")


def build(source: Source, folder: Path) -> None:
    """Write all samples in one transaction."""
    import lmdb

    size = 2 * source.path.stat().st_size + (1 << 28)
    with lmdb.open(str(folder), map_size=size) as env, env.begin(write=True) as transaction:
        for number, data in enumerate(source.samples()):
            transaction.put(_KEY.pack(number), data)
    np.save(folder / "shape.npy", np.asarray(source.shape))


class _Images:
    """Opens the environment in the process that reads, because a fork must not share it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._shape = tuple(np.load(folder / "shape.npy").tolist())
        self._transaction: Any = None
        with self._open() as env:
            self._length = env.stat()["entries"]

    def _open(self) -> Any:
        import lmdb

        return lmdb.open(
            str(self._folder), readonly=True, lock=False, readahead=False, meminit=False
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        if self._transaction is None:
            self._transaction = self._open().begin(buffers=True)
        data = self._transaction.get(_KEY.pack(number))
        if self._kind == DECODED:
            return decode(data)
        if self._kind == ARRAYS:
            return np.frombuffer(data, np.uint8).reshape(self._shape)
        return bytes(data)


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    return loader_pass(_Images(folder, job.kind), job)
