"""Packs to steps: equal work for every lane at every step, in an order as random as possible.

A step ends when the slowest rank is done. In random order one of many ranks always has an
unusually heavy pack, so each global batch consists of lanes with nearly equal work. The order
of global batches, and the assignment of packs to lanes, stay random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.data.permutation import make_permutation

WINDOW_GROUPS = 32
"""Global batches that are dealt from one window.

A small window keeps the order random. With one pack a rank and the worst of the five distributions
of `benchmarks.packing`, the slowest of 64 ranks had 16.5 % more work than the mean in random order,
1.2 % with windows of 16 batches, 0.6 % with 32, and 0.2 % with 128.
"""


def deal_by_work(
    work: np.ndarray,
    *,
    group_size: int,
    num_lanes: int,
    words: Sequence[int],
    alike: bool = False,
) -> np.ndarray:
    """Return an order of a window of packs in which runs of `group_size` have even work.

    Each run is a global batch. Lanes are runs of `group_size / num_lanes` packs, combined over
    the whole window, heavy packs with light ones; lanes with the nearest sums form a group.
    Groups, lanes of a group and packs of a lane are shuffled.

    Args:
        work: float64 [window] in shuffled order; lengths for unpacked samples.
        group_size: Packs of one global batch.
        num_lanes: A divisor of `group_size`.
        words: Seed of the shuffles, such as seed, epoch and number of the window.
        alike: True makes all packs of a group, not only its lanes, similar in work: for samples
            that are padded to the longest of their batch.

    Returns:
        int64 [window], a permutation.

    Raises:
        ValueError: the sizes do not divide each other.
    """
    _check_sizes(len(work), group_size, num_lanes)
    heavy_first = np.argsort(-work, kind="stable")
    num_groups = len(work) // group_size
    if alike:
        runs = heavy_first.reshape(num_groups, group_size)
        groups = np.stack([_even_lanes(work, run, num_lanes) for run in runs])
    else:
        lanes = _even_lanes(work, heavy_first, num_groups * num_lanes)
        # Added pack by pack: numpy's sum may round differently on another platform.
        sums = sum(work[lanes[:, number]] for number in range(lanes.shape[1]))
        groups = lanes[np.argsort(-sums, kind="stable")].reshape(num_groups, num_lanes, -1)
    return _shuffled(groups, words).reshape(-1)


def _check_sizes(num_packs: int, group_size: int, num_lanes: int) -> None:
    sizes = (num_packs, group_size, num_lanes)
    if min(sizes) < 1 or num_packs % group_size or group_size % num_lanes:
        message = (
            f"{num_packs} packs, group_size {group_size}, num_lanes {num_lanes}: each must be a "
            "multiple of the next, and at least 1"
        )
        raise ValueError(message)


def _even_lanes(work: np.ndarray, heavy_first: np.ndarray, num_lanes: int) -> np.ndarray:
    """Return lanes of equal size and nearly equal sums, int64 [num_lanes, lane_size].

    Longest-processing-time first (Graham, SIAM J. Appl. Math. 17, 1969) in rounds: each round
    gives every lane one pack, the heaviest to the lane with the least work so far.
    """
    rounds = heavy_first.reshape(-1, num_lanes)
    lanes = np.empty((num_lanes, len(rounds)), dtype=np.int64)
    sums = np.zeros(num_lanes)
    for number, packs in enumerate(rounds):
        lightest_first = np.argsort(sums, kind="stable")
        lanes[lightest_first, number] = packs
        sums[lightest_first] += work[packs]
    return lanes


def _shuffled(groups: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """Shuffle groups, lanes of each, and packs of each lane by a seed; the shape stays."""
    num_groups, num_lanes, _ = groups.shape
    order = make_permutation(num_groups, [*words, 0]).slice(0, num_groups)
    lane_keys = _keys((num_groups, num_lanes), [*words, 1])
    groups = np.take_along_axis(groups, np.argsort(lane_keys, axis=1)[:, :, None], axis=1)
    groups = np.take_along_axis(
        groups, np.argsort(_keys(groups.shape, [*words, 2]), axis=2), axis=2
    )
    return groups[order]


def _keys(shape: tuple[int, ...], words: Sequence[int]) -> np.ndarray:
    """Return distinct numbers, int64 of this shape, as sort keys for a shuffle."""
    size = int(np.prod(shape))
    return make_permutation(size, words).slice(0, size).reshape(shape)
