"""torch's DataLoader, used as the documentation of most peers says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.peers.job import RAW, Job, Pass


def loader_pass(dataset: Any, job: Job, *, is_shuffled: bool | None = None) -> Pass:
    """Return passes of a DataLoader with persistent workers over a data set of bytes or arrays."""
    from torch.utils.data import DataLoader, IterableDataset

    is_stream = isinstance(dataset, IterableDataset)
    loader = DataLoader(
        dataset,
        batch_size=job.batch_size,
        shuffle=None if is_stream else (job.is_shuffled if is_shuffled is None else is_shuffled),
        num_workers=job.num_workers,
        persistent_workers=job.num_workers > 0,
        collate_fn=list if job.kind == RAW else None,
    )
    return counted(loader)


def counted(loader: Any) -> Pass:
    """Yield the length of each batch."""

    def one_pass() -> Iterator[int]:
        for batch in loader:
            yield len(batch)

    return one_pass
