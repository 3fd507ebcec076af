"""Pure rules of the order in which packs are learned, independent of the number of ranks.

A pack is the content of one row of a batch: one sample, or several that share the row. Training
reads one endless stream: epoch after epoch, each in a different order. Global batch n is
`stream[n * G : (n + 1) * G]`, so every pack comes exactly once per epoch and no batch is short:
the last batch of an epoch is filled up with the first packs of the next. A global batch is cut
into lanes of equal size, and each rank takes a run of lanes. The content of a batch depends on
the seed, on G and, if work is dealt, on the number of lanes, never on the number of ranks. The
position after any step follows from the step alone.

An epoch's order is computed where it is read, so starting anywhere costs the same whatever the
number of packs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.deal import WINDOW_GROUPS, deal_by_work
from pipeline.data.permutation import Permutation, make_permutation
from slurm_jobs.base.errors import StageConfigError

EpochOrder = Callable[[int, int, int], np.ndarray]
"""`order(epoch, start, stop)`: packs `start` up to `stop` of an epoch's order, int64."""
WorkOf = Callable[[np.ndarray], np.ndarray]
"""Maps numbers of packs, int64 [n], to the work of each, float64 [n]."""

_ORDER_WORD, _DEAL_WORD = 1, 4
"""Separate the seeds of epochs and windows from those of other permutations."""
_STRETCH = 4096
"""Entries of a permutation that are computed at once: a few cost as much as a thousand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLayout:
    """Division of a global batch."""

    global_batch_size: int
    """Packs in one step, over all ranks."""
    num_lanes: int
    num_ranks: int
    num_microbatches: int
    """Microbatches in which a rank processes its share."""

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
        """Packs of one rank in one step."""
        return self.global_batch_size // self.num_ranks


def _check_divides(whole_name: str, whole: int, part_name: str, part: int) -> None:
    if part < 1 or whole < 1 or whole % part:
        message = (
            f"{whole_name} is {whole} and {part_name} is {part}: the first must be a multiple "
            f"of the second, so that every rank gets the same work"
        )
        raise StageConfigError(message)


def shuffled_order(num_packs: int, seed: int) -> EpochOrder:
    """Return an order with a new seeded permutation for each epoch."""

    @functools.lru_cache(maxsize=4)  # neighbouring steps share a stretch
    def stretch(epoch: int, number: int) -> np.ndarray:
        start = number * _STRETCH
        stop = min(start + _STRETCH, num_packs)
        return _epoch_permutation(num_packs, seed, epoch).slice(start, stop)

    def packs(epoch: int, start: int, stop: int) -> np.ndarray:
        if start >= stop:
            return np.empty(0, dtype=np.int64)
        first, last = start // _STRETCH, (stop - 1) // _STRETCH
        pieces = [stretch(epoch, number) for number in range(first, last + 1)]
        joined = pieces[0] if first == last else np.concatenate(pieces)
        offset = first * _STRETCH
        return joined[start - offset : stop - offset]

    return packs


def dealt_order(
    work_of: WorkOf, num_packs: int, seed: int, layout: BatchLayout, *, alike: bool = False
) -> EpochOrder:
    """Shuffle, then deal packs so that a global batch has lanes of equal work (`deal_by_work`).

    Packs are dealt in windows of each epoch's permutation, `WINDOW_GROUPS` global batches long.
    The packs before an epoch's first whole batch and after its last keep their shuffled order,
    because they share a batch with a neighbouring epoch.

    Args:
        work_of: Work of packs, in any unit; called for one window at a time.
        num_packs: Packs in an epoch.
        seed: Seed of the permutations and the windows.
        layout: Global batch and lanes; the number of ranks has no influence.
        alike: True makes the packs of a batch similar in work, too.
    """
    group_size = layout.global_batch_size
    window_size = WINDOW_GROUPS * group_size

    def shuffled(epoch: int, start: int, stop: int) -> np.ndarray:
        return _epoch_permutation(num_packs, seed, epoch).slice(start, stop)

    @functools.lru_cache(maxsize=4)  # neighbouring steps share a window
    def dealt_window(epoch: int, start: int, stop: int) -> np.ndarray:
        window = shuffled(epoch, start, stop)
        dealt = deal_by_work(
            work_of(window),
            group_size=group_size,
            num_lanes=layout.num_lanes,
            words=[_DEAL_WORD, seed, epoch, start],
            alike=alike,
        )
        return window[dealt]

    def packs(epoch: int, start: int, stop: int) -> np.ndarray:
        first, last = whole_batches(epoch, num_packs, group_size)
        pieces = [np.empty(0, dtype=np.int64)]
        while start < stop:
            if start < first:  # packs that complete a batch of the epoch before
                taken = min(first, stop)
                piece = shuffled(epoch, start, taken)
            elif start < last:
                window_start = start - (start - first) % window_size
                window_stop = min(window_start + window_size, last)
                taken = min(window_stop, stop)
                window = dealt_window(epoch, window_start, window_stop)
                piece = window[start - window_start : taken - window_start]
            else:  # packs that begin a batch which the next epoch completes
                taken = stop
                piece = shuffled(epoch, start, taken)
            pieces.append(piece)
            start = taken
        return np.concatenate(pieces)

    return packs


def whole_batches(epoch: int, num_packs: int, global_batch_size: int) -> tuple[int, int]:
    """Return the first and last (exclusive) offset in the epoch of packs that fill whole batches.

    The batches at its two ends are shared with the epochs before and after.
    """
    epoch_start = epoch * num_packs  # in the stream
    num_to_next_batch = (-epoch_start) % global_batch_size
    first = min(num_to_next_batch, num_packs)
    num_whole = (num_packs - first) // global_batch_size
    return first, first + num_whole * global_batch_size


@functools.lru_cache(maxsize=4)
def _epoch_permutation(num_packs: int, seed: int, epoch: int) -> Permutation:
    return make_permutation(num_packs, [_ORDER_WORD, seed, epoch])


def epoch_at(step: int, global_batch_size: int, num_packs: int) -> int:
    """Return the epoch of the first pack of a step."""
    return step * global_batch_size // num_packs


def stream_range(
    start: int, stop: int, num_packs: int, order: EpochOrder
) -> tuple[np.ndarray, np.ndarray]:
    """Return the packs of `stream[start:stop]` and the epoch of each: int64 [stop - start] both."""
    packs, epochs = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    while start < stop:
        epoch, offset = divmod(start, num_packs)
        num_taken = min(num_packs - offset, stop - start)
        packs.append(order(epoch, offset, offset + num_taken))
        epochs.append(np.full(num_taken, epoch, dtype=np.int64))
        start += num_taken
    return np.concatenate(packs), np.concatenate(epochs)


def lanes_of_rank(layout: BatchLayout, rank: int) -> range:
    """Return the lanes of a rank."""
    num_own = layout.num_lanes // layout.num_ranks
    return range(rank * num_own, (rank + 1) * num_own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Microbatch:
    """Packs that a rank learns at once."""

    packs: np.ndarray
    """int64 [num_packs]."""
    epochs: np.ndarray
    """int64 [num_packs]: the epoch of each pack."""


def rank_microbatches(
    step: int, layout: BatchLayout, rank: int, num_packs: int, order: EpochOrder
) -> list[Microbatch]:
    """Return the packs of one rank in one step, as microbatches of equal size."""
    lane_size = layout.global_batch_size // layout.num_lanes
    lanes = lanes_of_rank(layout, rank)
    first = step * layout.global_batch_size
    packs, epochs = stream_range(
        first + lanes.start * lane_size, first + lanes.stop * lane_size, num_packs, order
    )
    packs_by_part = np.split(packs, layout.num_microbatches)
    epochs_by_part = np.split(epochs, layout.num_microbatches)
    return [
        Microbatch(packs=part, epochs=epochs_of_part)
        for part, epochs_of_part in zip(packs_by_part, epochs_by_part, strict=True)
    ]
