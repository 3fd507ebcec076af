"""Interface of a peer that can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

NUM_WORKERS = 2
"""Worker processes per rank, for peers that have them."""
SEED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A rank and its share of a step."""

    rank: int
    num_ranks: int
    batch_size: int
    """Samples of this rank in a step."""


class Loader(Protocol):
    """Result of `open_numbers`."""

    def __iter__(self) -> Iterator[Any]:
        """Yield batches of samples, which are their own numbers."""

    def state_dict(self) -> Any:
        """Return the state for a checkpoint."""

    def load_state_dict(self, state: Any) -> None:
        """Resume from a state."""


class Resumable(Protocol):
    """Interface of the modules of this package."""

    NAME: str
    NEEDS: str
    PACKAGE: str
    IS_STATE_OF_RANK: bool
    """Whether each rank saves its own state; otherwise all ranks load that of rank 0."""

    def build_numbers(self, folder: Path, num_samples: int) -> None:
        """Write a set whose samples are their own numbers."""

    def open_numbers(self, folder: Path, place: Place) -> Loader:
        """Open the set shuffled, as the documentation says for several ranks."""
