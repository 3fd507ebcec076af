"""Limits of a pack, the packs themselves, and samples that exceed the limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

_BLOCK_SIZE = 1 << 20
"""Samples whose sizes are checked together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackBudget:
    """Limits of one pack."""

    max_tokens: int
    """Image tokens included."""
    max_images: int | None = None
    """None: limited by tokens only."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or (self.max_images is not None and self.max_images < 1):
            message = f"{self}: max_tokens and max_images must be at least 1"
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Packs:
    """Samples in packs: pack p holds `items[bounds[p]:bounds[p + 1]]`, in this order."""

    bounds: np.ndarray
    """int64 [num_packs + 1]; the first is 0, the last the number of items."""
    items: np.ndarray
    """int32 or int64 [num_items]: numbers of samples, in the order of the index."""

    @classmethod
    def from_lists(cls, packs: Sequence[Sequence[int]]) -> Packs:
        """Return the packs with these samples."""
        sizes = [len(pack) for pack in packs]
        return cls(
            bounds=np.cumsum([0, *sizes], dtype=np.int64),
            items=np.fromiter(chain.from_iterable(packs), dtype=np.int64, count=sum(sizes)),
        )

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def pack(self, number: int) -> np.ndarray:
        """Return the samples of one pack."""
        return self.items[self.bounds[number] : self.bounds[number + 1]]

    def some(self, numbers: np.ndarray) -> Packs:
        """Return only these packs, in this order; `numbers` is an array of integers."""
        starts = self.bounds[numbers]
        sizes = self.bounds[numbers + 1] - starts
        bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
        return Packs(bounds=bounds, items=self.items[places])


def item_type(num_samples: int) -> np.dtype:
    """Return the type of `Packs.items` for an index of this size: int32 while numbers fit."""
    return np.dtype("<i4" if num_samples <= np.iinfo(np.int32).max else "<i8")


def join_packs(parts: Iterable[Packs]) -> Packs:
    """Concatenate packs, in their order."""
    bounds, items, num_items = [np.zeros(1, np.int64)], [], 0
    for part in parts:
        bounds.append(part.bounds[1:] + num_items)
        items.append(part.items)
        num_items += len(part.items)
    return Packs(
        bounds=np.concatenate(bounds),
        items=np.concatenate(items) if items else np.zeros(0, np.int32),
    )


class OverBudgetError(ValueError):
    """Samples exceed the budget; states how many, and the largest."""

    def __init__(self, message: str, *, needed: Mapping[str, int], number: int) -> None:
        """Create it; `needed` is the budget they would need, by name; `number` is such a sample."""
        super().__init__(message)
        self.needed, self.number = needed, number


def too_large(num_tokens: np.ndarray, num_images: np.ndarray, budget: PackBudget) -> np.ndarray:
    """Return which samples exceed the budget, bool [num_samples]; the inverse is a `keep`.

    Args:
        num_tokens: Integers [num_samples], image tokens included.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
    """
    large = np.asarray(num_tokens) > budget.max_tokens
    if budget.max_images is not None:
        large = large | (np.asarray(num_images) > budget.max_images)
    return large


def check_sizes(
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    budget: PackBudget,
    keep: np.ndarray | None = None,
) -> None:
    """Refuse samples that exceed the budget or are empty.

    Args:
        num_tokens: Integers [num_samples], image tokens included.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
        keep: bool [num_samples]: check only these. None: all.

    Raises:
        OverBudgetError: some exceed it; the message states how many, and the largest.
        ValueError: some are empty.
    """
    _refuse_empty(num_tokens, keep)
    num_kept = len(num_tokens) if keep is None else int(np.count_nonzero(keep))
    limits = (("tokens", num_tokens, budget.max_tokens), ("images", num_images, budget.max_images))
    problems, needed, number = [], {}, 0
    for name, sizes, limit in limits:
        if limit is None:
            continue
        num_over, largest, worst = _over(sizes, limit, keep)
        if num_over:
            problems.append(
                f"{num_over} of {num_kept} samples have more than max_{name} = {limit} "
                f"{name}, the largest has {largest}"
            )
            needed[f"max_{name}"], number = largest, worst
    if problems:
        raise OverBudgetError("; ".join(problems), needed=needed, number=number)


def _refuse_empty(num_tokens: np.ndarray, keep: np.ndarray | None) -> None:
    num_empty = first = 0
    for start, tokens, kept in _blocks(num_tokens, keep):
        empty = np.flatnonzero(kept & (tokens < 1))
        if len(empty) and not num_empty:
            first = start + int(empty[0])
        num_empty += len(empty)
    if num_empty:
        message = f"{num_empty} samples have no tokens, the first is number {first}"
        raise ValueError(message)


def _over(sizes: np.ndarray, limit: int, keep: np.ndarray | None) -> tuple[int, int, int]:
    """Return how many exceed the limit, the largest of them, and its number."""
    num_over = largest = worst = 0
    for start, some, kept in _blocks(sizes, keep):
        over = np.flatnonzero(kept & (some > limit))
        num_over += len(over)
        if len(over):
            place = int(over[np.argmax(some[over])])
            if some[place] > largest:
                largest, worst = int(some[place]), start + place
    return num_over, largest, worst


def _blocks(
    sizes: np.ndarray, keep: np.ndarray | None
) -> Iterator[tuple[int, np.ndarray, np.ndarray | bool]]:
    """Yield runs of samples, to bound memory, and which of them are kept."""
    for start in range(0, len(sizes), _BLOCK_SIZE):
        rows = slice(start, start + _BLOCK_SIZE)
        yield start, np.asarray(sizes[rows]), True if keep is None else keep[rows]
