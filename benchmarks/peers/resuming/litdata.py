"""litdata's `StreamingDataLoader.state_dict`; ranks from WORLD_SIZE, GLOBAL_RANK and NNODES."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.resuming.going_on import NUM_WORKERS, SEED, Place

NAME = "litdata"
NEEDS = "litdata"
PACKAGE = "litdata"
IS_STATE_OF_RANK = False


def as_is(number: int) -> int:
    """Return the sample of a number: the number itself."""
    return number


def build_numbers(folder: Path, num_samples: int) -> None:
    """See `Resumable`."""
    import litdata

    litdata.optimize(
        fn=as_is,
        inputs=list(range(num_samples)),
        output_dir=str(folder),
        chunk_size=num_samples // 20,
        num_workers=1,
        verbose=False,
    )


def open_numbers(folder: Path, place: Place) -> Any:
    """See `Resumable`."""
    import litdata

    dataset = litdata.StreamingDataset(str(folder), shuffle=True, seed=SEED, drop_last=False)
    return litdata.StreamingDataLoader(
        dataset, batch_size=place.batch_size, num_workers=NUM_WORKERS
    )
