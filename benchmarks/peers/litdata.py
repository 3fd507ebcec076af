"""litdata: chunks written by `optimize`, read by `StreamingDataset` and `StreamingDataLoader`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, RAW, SEED, Job, Pass, Source, decode
from benchmarks.peers.loading import counted

NAME = "litdata"
NEEDS = "litdata"
PACKAGE = "litdata"


class _Stored:
    """Returns a sample by number, for `optimize`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ends = np.cumsum(source.lengths)

    def __call__(self, number: int) -> Any:
        end, length = int(self._ends[number]), int(self._source.lengths[number])
        with self._source.path.open("rb") as stream:
            stream.seek(end - length)
            data = stream.read(length)
        if self._source.kind == ARRAYS:
            return np.frombuffer(data, np.uint8).reshape(self._source.shape).copy()
        return data


def build(source: Source, folder: Path) -> None:
    """Write chunks with the library's own writer."""
    import litdata

    litdata.optimize(
        fn=_Stored(source),
        inputs=list(range(len(source.lengths))),
        output_dir=str(folder),
        chunk_bytes=source.shard_bytes,
        num_workers=1,
        verbose=False,
    )


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    import litdata

    dataset = litdata.StreamingDataset(
        str(folder),
        shuffle=job.is_shuffled,
        seed=SEED,
        drop_last=False,
        # The reader returns a view of bytes, which workers cannot send.
        transform={RAW: bytes, DECODED: decode, ARRAYS: None}[job.kind],
    )
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=job.batch_size,
        num_workers=job.num_workers,
        persistent_workers=job.num_workers > 0,
        **({"collate_fn": list} if job.kind == RAW else {}),
    )
    return counted(loader)
