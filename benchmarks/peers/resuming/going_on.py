"""What a peer must offer to be stopped and gone on with, and how it is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

NUM_WORKERS = 2
"""Of a rank, for peers that have worker processes."""
SEED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Which rank reads, and how much at a time."""

    rank: int
    num_ranks: int
    batch_size: int
    """Samples of this rank in a step."""


class Loader(Protocol):
    """What `open_numbers` gives."""

    def __iter__(self) -> Iterator[Any]:
        """Batches of samples, which are their own numbers."""

    def state_dict(self) -> Any:
        """What a checkpoint keeps."""

    def load_state_dict(self, state: Any) -> None:
        """Go on from there."""


class Resumable(Protocol):
    """What a module of this package has."""

    NAME: str
    NEEDS: str
    PACKAGE: str
    IS_STATE_OF_RANK: bool
    """Each rank saves its own state; else rank 0 saves the one that all load."""

    def build_numbers(self, folder: Path, num_samples: int) -> None:
        """Write a set whose samples are their own numbers."""

    def open_numbers(self, folder: Path, place: Place) -> Loader:
        """Shuffled, as the documentation says for several ranks."""
