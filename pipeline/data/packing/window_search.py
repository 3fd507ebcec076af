"""Exact fits within a window, largest first: for samples of which few fill a pack.

Minimum bin slack (Gupta and Ho, Production Planning and Control 10, 1999): each pack begins
with the largest remaining sample and is filled by the first exact subset of the next smaller
ones. So the small samples, which fill any room, are used last. Samples that fill badly at the
end of a window return to the next one, a few times at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from pipeline.data.packing.sample_costs import Measures, choose

WINDOW_SIZE = 4096
"""Samples that are searched together."""


MAX_DELAYS = 3
"""Limit of deferrals of a sample to the next window: it is used before `LONGEST_DELAY` more
samples are read."""


LONGEST_DELAY = (MAX_DELAYS + 1) * WINDOW_SIZE


_MAX_CARRIED = WINDOW_SIZE // 4


_NUM_LOOKED_AT = 128
"""Samples from which the search for an exact fit chooses."""


_GOOD_SHARE = 512
"""A pack with less than 1 / `_GOOD_SHARE` of its room empty is not deferred."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pack:
    """Pack that may still be deferred."""

    places: list[int]
    left: int
    """Remaining room by size."""
    is_full: bool
    """Filled but for less than 1 / `_GOOD_SHARE`; where images fill packs and some samples have
    none, a pack full of tokens counts, too."""


def pack_by_windows(measures: Measures) -> list[list[int]]:
    """Return packs: lists of the samples' positions."""
    final: list[list[int]] = []
    carried: list[int] = []
    first_window: dict[int, int] = {}
    start = window = 0
    while start < len(measures) or carried:
        stop = min(len(measures), start + WINDOW_SIZE - len(carried))
        packs = _fill_window(measures, [*carried, *range(start, stop)])
        is_last = stop == len(measures)
        deferred = set() if is_last else _to_defer(packs, first_window, window)
        carried = []
        for number, pack in enumerate(packs):
            if number in deferred:
                carried += pack.places
            else:
                final.append(pack.places)
        first_window = {place: first_window.get(place, window) for place in carried}
        start, window = stop, window + 1
    return final


def _to_defer(packs: list[_Pack], first_window: dict[int, int], window: int) -> set[int]:
    """Return the numbers of packs to defer, the emptiest first while there is room for them."""
    deferred: set[int] = set()
    num_carried = 0
    for number in sorted(range(len(packs)), key=lambda number: -packs[number].left):
        pack = packs[number]
        if pack.is_full or num_carried + len(pack.places) > _MAX_CARRIED:
            continue
        oldest = min(first_window.get(place, window) for place in pack.places)
        if window - oldest < MAX_DELAYS:
            deferred.add(number)
            num_carried += len(pack.places)
    return deferred


def _fill_window(measures: Measures, places: list[int]) -> list[_Pack]:
    """Pack these samples, the pack with the largest remaining sample first."""
    all_sizes, all_costs = measures.sizes, measures.costs
    # By rising size and, among equal sizes, cost: samples that are in no pack yet.
    places = sorted(places, key=lambda place: (all_sizes[place], all_costs[place], place))
    sizes = [all_sizes[place] for place in places]
    costs = [all_costs[place] for place in places]
    least_cost = min(costs)
    packs = []
    while places:
        pack = [places.pop()]
        left, cost_left = measures.size_limit - sizes.pop(), measures.cost_limit - costs.pop()
        end = bisect_right(sizes, left)
        start = max(0, end - _NUM_LOOKED_AT)
        numbers, left, cost_left = choose(
            sizes[start:end][::-1], left, costs[start:end][::-1], cost_left
        )
        for number in reversed(numbers):  # the largest of the candidates is number 0
            pack.append(places.pop(end - 1 - number))
            del sizes[end - 1 - number], costs[end - 1 - number]
        while places and left >= sizes[0] and cost_left >= least_cost:
            number = _largest_that_fits(sizes, left, costs, cost_left)
            if number < 0:
                break
            pack.append(places.pop(number))
            left -= sizes.pop(number)
            cost_left -= costs.pop(number)
        is_full = left * _GOOD_SHARE <= measures.size_limit or (
            measures.some_are_free and cost_left * _GOOD_SHARE <= measures.cost_limit
        )
        packs.append(_Pack(places=pack, left=left, is_full=is_full))
    return packs


def _largest_that_fits(sizes: list[int], room: int, costs: list[int], cost_room: int) -> int:
    """Return the number of the largest sample that fits; -1 if none does."""
    stop = bisect_right(sizes, room)
    while stop:
        start = bisect_left(sizes, sizes[stop - 1], 0, stop)
        end = bisect_right(costs, cost_room, start, stop)
        if end > start:
            return end - 1
        stop = start
    return -1
