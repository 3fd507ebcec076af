"""webdataset: streamed tar shards in a `WebLoader`, shuffled by shard and in a buffer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, SEED, Job, Pass, Source
from benchmarks.peers.loading import counted

NAME = "webdataset"
NEEDS = "webdataset"
PACKAGE = "webdataset"
_BUFFER = 1000
"""Size of the shuffle buffer, as in the library's README."""


def build(source: Source, folder: Path) -> None:
    """Write shards with the library's own writer."""
    import webdataset as wds

    with wds.ShardWriter(f"{folder}/%06d.tar", maxsize=source.shard_bytes, verbose=0) as sink:
        for number, data in enumerate(source.samples()):
            sink.write({"__key__": f"{number:06d}", **_member(source, data)})


def _member(source: Source, data: bytes) -> dict[str, bytes]:
    if source.kind != ARRAYS:
        return {"jpg": data}
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(data, np.uint8).reshape(source.shape))
    return {"npy": stream.getvalue()}


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`. The workers make the batches, as the documentation says."""
    import webdataset as wds

    urls = sorted(str(path) for path in folder.glob("*.tar"))
    shards = len(urls) if job.is_shuffled else False
    samples = wds.WebDataset(urls, shardshuffle=shards, seed=SEED)
    if job.is_shuffled:
        samples = samples.shuffle(_BUFFER)
    if job.kind == DECODED:
        samples = samples.decode("rgb8")
    elif job.kind == ARRAYS:
        samples = samples.decode()
    collate: Any = None if job.kind in (DECODED, ARRAYS) else _as_lists
    name = "npy" if job.kind == ARRAYS else "jpg"
    batches = samples.to_tuple(name).batched(
        job.batch_size, **({} if collate is None else {"collation_fn": collate})
    )
    loader = wds.WebLoader(
        batches,
        batch_size=None,
        num_workers=job.num_workers,
        persistent_workers=job.num_workers > 0,
    )
    return counted(_First(loader))


class _First:
    """Yields the first field of each tuple."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Any:
        return (batch[0] for batch in self._loader)


def _as_lists(samples: Any) -> list[list[Any]]:
    return [[sample[0] for sample in samples]]
