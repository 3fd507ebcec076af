"""mosaicml's `StreamingDataLoader.state_dict`; ranks from the variables that torchrun sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.resuming.going_on import NUM_WORKERS, SEED, Place

NAME = "mosaicml-streaming"
NEEDS = "streaming"
PACKAGE = "mosaicml-streaming"
IS_STATE_OF_RANK = False


def build_numbers(folder: Path, num_samples: int) -> None:
    """See `Resumable`."""
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"number": "int"}, size_limit=1 << 12) as sink:
        for number in range(num_samples):
            sink.write({"number": number})


def open_numbers(folder: Path, place: Place) -> Any:
    """See `Resumable`."""
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(
        local=str(folder),
        shuffle=True,
        shuffle_seed=SEED,
        batch_size=place.batch_size,
        # Its documentation requires a name if the number of nodes may change.
        num_canonical_nodes=2,
    )
    loader = StreamingDataLoader(dataset, batch_size=place.batch_size, num_workers=NUM_WORKERS)
    return _Numbers(loader)


class _Numbers:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.state_dict = loader.state_dict
        self.load_state_dict = loader.load_state_dict

    def __iter__(self) -> Any:
        return (batch["number"] for batch in self._loader)
