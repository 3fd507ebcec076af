"""Packs to steps: every lane the same work at every step, and what comes when as random as may be.

Steps end when the slowest rank does. Of packs in random order the slowest of
many ranks always has an unusually heavy one; so each global batch is made of
lanes with nearly equal work. Which global batch comes when stays random, and so
does which lane of it has what.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pipeline.data.permutation import make_permutation

WINDOW_GROUPS = 32
"""Global batches that are dealt from one window: see docs/data.md for the measurement."""


def deal_by_work(
    work: np.ndarray,
    *,
    group_size: int,
    num_lanes: int,
    words: Sequence[int],
    alike: bool = False,
) -> np.ndarray:
    """An order of a window of packs whose runs of `group_size` are global batches of even work.

    Lanes are runs of `group_size / num_lanes` packs, put together for the whole
    window, heavy packs with light ones; those with the nearest sums make a
    group. Groups, lanes of a group and packs of a lane are shuffled.

    Args:
        work: float64 [window], of a shuffled order; of unpacked samples the lengths.
        group_size: Packs of one global batch.
        num_lanes: A divisor of `group_size`.
        words: What the shuffles are seeded by, such as seed, epoch and number of the window.
        alike: Packs of a group, not only their lanes, are of similar work: for samples that are
            padded to the longest of their batch.

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
        # Added pack by pack: numpy's own sum may round otherwise on another platform.
        sums = sum(work[lanes[:, number]] for number in range(lanes.shape[1]))
        groups = lanes[np.argsort(-sums, kind="stable")].reshape(num_groups, num_lanes, -1)
    return _shuffled(groups, words).reshape(-1)


def deal_epoch(
    work: np.ndarray, *, group_size: int, num_lanes: int, words: Sequence[int], alike: bool = False
) -> np.ndarray:
    """As `deal_by_work`, window after window, of all packs that fill global batches.

    Windows have `WINDOW_GROUPS` groups, or as many more as make them equal but for one.

    Args:
        work: float64 [num_packs] in a shuffled order, at least one group.
        group_size: Packs of one global batch.
        num_lanes: A divisor of `group_size`.
        words: What the shuffles are seeded by, such as seed and epoch.
        alike: See `deal_by_work`.

    Returns:
        int64 [num_packs // group_size * group_size]; the packs after these are in no group.

    Raises:
        ValueError: the sizes do not divide each other, or there is no whole group.
    """
    num_groups = len(work) // max(1, group_size)
    num_windows = max(1, num_groups // WINDOW_GROUPS)
    bounds = [number * num_groups // num_windows * group_size for number in range(num_windows + 1)]
    parts = [
        start
        + deal_by_work(
            work[start:stop],
            group_size=group_size,
            num_lanes=num_lanes,
            words=[*words, number],
            alike=alike,
        )
        for number, (start, stop) in enumerate(pairwise(bounds))
    ]
    return np.concatenate(parts)


def _check_sizes(num_packs: int, group_size: int, num_lanes: int) -> None:
    sizes = (num_packs, group_size, num_lanes)
    if min(sizes) < 1 or num_packs % group_size or group_size % num_lanes:
        message = (
            f"{num_packs} packs, group_size {group_size}, num_lanes {num_lanes}: each must be a "
            "multiple of the next, and at least 1"
        )
        raise ValueError(message)


def _even_lanes(work: np.ndarray, heavy_first: np.ndarray, num_lanes: int) -> np.ndarray:
    """Packs in lanes of equal size and nearly equal sums, int64 [num_lanes, lane_size].

    Longest-processing-time first (Graham, SIAM J. Appl. Math. 17, 1969) in
    rounds: each round gives every lane one pack, the heaviest of it to the lane
    with the least so far.
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
    """Groups, lanes of each, and packs of each lane in a seeded order; of the same shape."""
    num_groups, num_lanes, _ = groups.shape
    order = make_permutation(num_groups, [*words, 0]).slice(0, num_groups)
    lane_keys = _keys((num_groups, num_lanes), [*words, 1])
    groups = np.take_along_axis(groups, np.argsort(lane_keys, axis=1)[:, :, None], axis=1)
    groups = np.take_along_axis(
        groups, np.argsort(_keys(groups.shape, [*words, 2]), axis=2), axis=2
    )
    return groups[order]


def _keys(shape: tuple[int, ...], words: Sequence[int]) -> np.ndarray:
    """Numbers that are all different, int64 of this shape, to sort by for a shuffle."""
    size = int(np.prod(shape))
    return make_permutation(size, words).slice(0, size).reshape(shape)
