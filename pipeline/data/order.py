"""Which sample comes when: pure functions of seed, step and sizes.

The samples form one endless stream, the epochs' permutations one after the
other. Global batch n is `stream[n * G : (n + 1) * G]`, so that every sample
comes exactly once an epoch and no batch is ever short. A global batch is cut
into lanes of equal size; rank r of R takes its run of lanes. What a batch
holds depends on the seed and on G, never on the number of ranks, and the
position after any step follows from the step alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slurm_jobs.common.errors import StageConfigError

EpochOrder = Callable[[int], np.ndarray]
"""From an epoch to its permutation, int64 [num_samples]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamPosition:
    """A place in the stream of samples."""

    epoch: int
    offset: int
    """Samples of the epoch that came before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLayout:
    """How a global batch is divided."""

    global_batch_size: int
    """Samples in one step, over all ranks."""
    num_lanes: int
    num_ranks: int
    num_microbatches: int
    """Into which each rank cuts its share."""

    def __post_init__(self) -> None:
        _check_divides("global_batch_size", self.global_batch_size, "num_lanes", self.num_lanes)
        _check_divides("num_lanes", self.num_lanes, "the number of ranks", self.num_ranks)
        _check_divides(
            "global_batch_size / number of ranks",
            self.rank_batch_size,
            "num_microbatches",
            self.num_microbatches,
        )

    @property
    def rank_batch_size(self) -> int:
        """Samples of one rank in one step."""
        return self.global_batch_size // self.num_ranks


def _check_divides(whole_name: str, whole: int, part_name: str, part: int) -> None:
    if part < 1 or whole < 1 or whole % part:
        message = (
            f"{whole_name} is {whole} and {part_name} is {part}: the first must be a multiple "
            f"of the second, so that every rank gets the same work"
        )
        raise StageConfigError(message)


def epoch_order(num_samples: int, seed: int, epoch: int) -> np.ndarray:
    """The permutation of one epoch, int64 [num_samples]: PCG64 seeded by (seed, epoch)."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    return generator.permutation(num_samples)


def position_at(step: int, global_batch_size: int, num_samples: int) -> StreamPosition:
    """Where the first sample of a step stands."""
    epoch, offset = divmod(step * global_batch_size, num_samples)
    return StreamPosition(epoch=epoch, offset=offset)


def stream_range(start: int, stop: int, num_samples: int, order_of: EpochOrder) -> np.ndarray:
    """Sample numbers of `stream[start:stop]`, int64 [stop - start]."""
    pieces = []
    while start < stop:
        epoch, offset = divmod(start, num_samples)
        num_taken = min(num_samples - offset, stop - start)
        pieces.append(order_of(epoch)[offset : offset + num_taken])
        start += num_taken
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)


def lanes_of_rank(layout: BatchLayout, rank: int) -> range:
    """The lanes that a rank takes."""
    num_own = layout.num_lanes // layout.num_ranks
    return range(rank * num_own, (rank + 1) * num_own)


def rank_microbatches(
    step: int, layout: BatchLayout, rank: int, num_samples: int, order_of: EpochOrder
) -> list[np.ndarray]:
    """Sample numbers of one rank in one step: int64 arrays of equal size, one a microbatch."""
    lane_size = layout.global_batch_size // layout.num_lanes
    lanes = lanes_of_rank(layout, rank)
    first = step * layout.global_batch_size
    numbers = stream_range(
        first + lanes.start * lane_size, first + lanes.stop * lane_size, num_samples, order_of
    )
    return np.split(numbers, layout.num_microbatches)
