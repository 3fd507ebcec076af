"""Packs of a whole epoch, from the index and a seed, stretch by stretch.

Each stretch of the seeded order is packed separately. So memory is bounded whatever the size,
several processes can share the work, and the packs do not depend on the number of processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from pipeline.data.packing.algorithms import STRATEGIES
from pipeline.data.packing.budget import PackBudget, Packs, check_sizes, item_type
from pipeline.data.permutation import make_permutation

STRETCH_SIZE = 1 << 18
"""Entries of the order that are packed together. Another size gives another plan: raise
`FORMAT_VERSION` with it."""


def pack_order(
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    *,
    budget: PackBudget,
    strategy: str,
    words: Sequence[int],
    keep: np.ndarray | None = None,
    num_processes: int = 1,
) -> Iterator[Packs]:
    """Yield the packs of one order of the samples, stretch by stretch; `join_packs` joins them.

    Equal arguments give equal packs on every platform, whatever `num_processes`.

    Args:
        num_tokens: Integers [num_samples], image tokens included; may be memory-mapped.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
        strategy: A name of `STRATEGIES`.
        words: Seed of the order (`make_permutation`); a training gives its seed alone.
        keep: bool [num_samples]: samples to pack. None: all.
        num_processes: More than one starts processes, which end with the last stretch.

    Raises:
        OverBudgetError: samples that are kept exceed the budget.
        ValueError: some have no tokens, or no strategy has this name.
    """
    if strategy not in STRATEGIES:
        message = f"strategy {strategy!r}: one of {', '.join(STRATEGIES)} is needed"
        raise ValueError(message)
    if not len(num_tokens) == len(num_images) == len(num_tokens if keep is None else keep):
        message = "num_tokens, num_images and keep must have one entry a sample each"
        raise ValueError(message)
    check_sizes(num_tokens, num_images, budget, keep)
    stretches = _stretches(num_tokens, num_images, words, keep)
    jobs = ((strategy, budget, *stretch) for stretch in stretches)
    if num_processes == 1:
        return (pack_stretch(*job) for job in jobs)
    return _in_processes(jobs, num_processes)


def pack_stretch(
    strategy: str,
    budget: PackBudget,
    numbers: np.ndarray,
    num_tokens: np.ndarray,
    num_images: np.ndarray,
) -> Packs:
    """Return the packs of one stretch.

    Args:
        strategy: A name of `STRATEGIES`.
        budget: Budget of a pack.
        numbers: Numbers of the samples in their order, int32 or int64 [stretch].
        num_tokens: Tokens of these samples, [stretch].
        num_images: Images of these samples, [stretch].
    """
    packs = STRATEGIES[strategy](num_tokens.tolist(), num_images.tolist(), budget)
    places = Packs.from_lists(packs)
    return Packs(bounds=places.bounds, items=numbers[places.items])


def _stretches(
    num_tokens: np.ndarray, num_images: np.ndarray, words: Sequence[int], keep: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield numbers, tokens and images of the samples in their order."""
    size = len(num_tokens)
    if not size:
        return
    permutation = make_permutation(size, words)
    for start in range(0, size, STRETCH_SIZE):
        numbers = permutation.slice(start, min(start + STRETCH_SIZE, size))
        if keep is not None:
            numbers = numbers[keep[numbers]]
        yield numbers.astype(item_type(size)), num_tokens[numbers], num_images[numbers]


def _in_processes(jobs: Iterator[tuple[Any, ...]], num_processes: int) -> Iterator[Packs]:
    """Run `pack_stretch` on each job, in order; few jobs wait at a time."""
    waiting: deque[Future[Packs]] = deque()
    # Spawned: the caller may have threads, and a fork would copy their locks.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for job in jobs:
            waiting.append(pool.submit(pack_stretch, *job))
            if len(waiting) > num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
