"""mosaicml-streaming: MDS shards, `StreamingDataset` in a DataLoader."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, SEED, Job, Pass, Source
from benchmarks.peers.loading import loader_pass

NAME = "mosaicml-streaming"
NEEDS = "streaming"
PACKAGE = "mosaicml-streaming"


def build(source: Source, folder: Path) -> None:
    """Write shards with the library's own writer."""
    from streaming import MDSWriter

    shape = ",".join(map(str, source.shape))
    kind = f"ndarray:uint8:{shape}" if source.kind == ARRAYS else "bytes"
    with MDSWriter(out=str(folder), columns={"image": kind}, size_limit=source.shard_bytes) as sink:
        for data in source.samples():
            pixels = np.frombuffer(data, np.uint8)
            sink.write({"image": pixels.reshape(source.shape) if source.kind == ARRAYS else data})


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`. Its own type `jpeg` also decodes with Pillow, but returns no array."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    from benchmarks.peers.job import decode

    class _Images(StreamingDataset):
        def __getitem__(self, number: Any) -> Any:
            image = super().__getitem__(number)["image"]
            return decode(image) if job.kind == DECODED else image

    clean_stale_shared_memory()
    # A process may open a folder only once, so each job has its own name for it.
    link = Path(tempfile.mkdtemp(prefix="mds-")) / "set"
    link.symlink_to(folder)
    images = _Images(
        local=str(link), shuffle=job.is_shuffled, shuffle_seed=SEED, batch_size=job.batch_size
    )
    return loader_pass(images, job)
