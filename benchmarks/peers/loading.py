"""torch's DataLoader as the documentation of most peers uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.peers.job import RAW, Job, Pass


def loader_pass(dataset: Any, job: Job, *, is_shuffled: bool | None = None) -> Pass:
    """Passes of a DataLoader over a data set of bytes or arrays; its workers persist."""
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
    """Each delivery is a sequence of samples."""

    def one_pass() -> Iterator[int]:
        for batch in loader:
            yield len(batch)

    return one_pass
