"""`datasets` as a shuffled iterable, split by rank, in a `StatefulDataLoader`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.resuming.going_on import SEED, Place

NAME = "datasets"
NEEDS = "datasets"
PACKAGE = "datasets"
IS_STATE_OF_RANK = True
_NUM_SHARDS = 16
_BUFFER = 100


def build_numbers(folder: Path, num_samples: int) -> None:
    """See `Resumable`."""
    import datasets

    datasets.Dataset.from_dict({"number": range(num_samples)}).save_to_disk(str(folder))


def open_numbers(folder: Path, place: Place) -> Any:
    """See `Resumable`."""
    import datasets
    from datasets.distributed import split_dataset_by_node
    from torchdata.stateful_dataloader import StatefulDataLoader

    rows = datasets.load_from_disk(str(folder)).to_iterable_dataset(num_shards=_NUM_SHARDS)
    rows = rows.shuffle(seed=SEED, buffer_size=_BUFFER)
    own = split_dataset_by_node(rows, rank=place.rank, world_size=place.num_ranks)
    # No workers: with them, version 5.2 cannot load the state of a shuffled set (IndexError).
    return _Numbers(StatefulDataLoader(own, batch_size=place.batch_size, num_workers=0))


class _Numbers:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.state_dict = loader.state_dict
        self.load_state_dict = loader.load_state_dict

    def __iter__(self) -> Any:
        return (batch["number"] for batch in self._loader)
