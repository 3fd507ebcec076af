"""torchdata's `StatefulDataLoader` and its sampler over a map-style set (files, LMDB, HDF5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.resuming.going_on import NUM_WORKERS, SEED, Place

NAME = "StatefulDataLoader"
NEEDS = "torchdata.stateful_dataloader"
PACKAGE = "torchdata"
IS_STATE_OF_RANK = True


def build_numbers(folder: Path, num_samples: int) -> None:
    """See `Resumable`."""
    np.save(folder / "numbers.npy", np.arange(num_samples))


def open_numbers(folder: Path, place: Place) -> Any:
    """See `Resumable`."""
    from torch.utils.data import DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    numbers = np.load(folder / "numbers.npy", mmap_mode="r")
    sampler: Any = DistributedSampler(
        numbers, num_replicas=place.num_ranks, rank=place.rank, shuffle=True, seed=SEED
    )
    return StatefulDataLoader(
        numbers, batch_size=place.batch_size, sampler=sampler, num_workers=NUM_WORKERS
    )
