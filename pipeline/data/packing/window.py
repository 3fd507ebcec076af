"""Exact fits within a window, largest first: for samples of which few fill a pack.

Minimum bin slack (Gupta and Ho, Production Planning and Control 10, 1999): each pack begins
with the largest remaining sample and is filled by the first exact subset of the next smaller
ones. So the small samples, which fill any room, are used last. Samples that fill badly at the
end of a window return to the next one, a few times at most.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from pipeline.data.packing.measures import Measures, choose

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
class _Filled:
    """Pack that may still be deferred."""

    places: list[int]
    left: int
    """Remaining room by size."""
    is_full: bool
    """Filled but for less than 1 / `_GOOD_SHARE`; where images fill packs and some samples have
    none, a pack full of tokens counts, too."""


def pack_by_windows(measures: Measures) -> tuple[list[int], list[int]]:
    """Return the end of each pack in the second list, and that list: positions of the samples."""
    ends: list[int] = []
    items: list[int] = []
    carried: list[int] = []
    first_window: dict[int, int] = {}
    start = window = 0
    while start < len(measures) or carried:
        stop = min(len(measures), start + WINDOW_SIZE - len(carried))
        packs = _fill_window(measures, [*carried, *range(start, stop)])
        is_last = stop == len(measures)
        put_off = set() if is_last else _worst(packs, first_window, window)
        carried = [place for number in sorted(put_off) for place in packs[number].places]
        first_window = {place: first_window.get(place, window) for place in carried}
        for number, pack in enumerate(packs):
            if number not in put_off:
                items += pack.places
                ends.append(len(items))
        start, window = stop, window + 1
    return ends, items


def _worst(packs: list[_Filled], first_window: dict[int, int], window: int) -> set[int]:
    """Return the packs to defer, the emptiest first while there is room for them."""
    found: set[int] = set()
    num_carried = 0
    for number in sorted(range(len(packs)), key=lambda number: -packs[number].left):
        pack = packs[number]
        if pack.is_full or num_carried + len(pack.places) > _MAX_CARRIED:
            continue
        oldest = min(first_window.get(place, window) for place in pack.places)
        if window - oldest < MAX_DELAYS:
            found.add(number)
            num_carried += len(pack.places)
    return found


def _fill_window(measures: Measures, places: list[int]) -> list[_Filled]:
    """Pack these samples, the pack with the largest sample first."""
    all_sizes, all_costs = measures.sizes, measures.costs
    places = sorted(places, key=lambda place: (all_sizes[place], all_costs[place], place))
    window = _Window(
        places=places,
        sizes=[all_sizes[place] for place in places],
        costs=[all_costs[place] for place in places],
    )
    least_cost = min(window.costs)
    packs = []
    while window.places:
        packs.append(_fill_pack(measures, window, least_cost))
    return packs


def _fill_pack(measures: Measures, window: _Window, least_cost: int) -> _Filled:
    """Take one pack out of the window, which begins with its largest sample."""
    pack: list[int] = []
    size, cost = window.take(len(window.places) - 1, pack)
    left, cost_left = measures.size_limit - size, measures.cost_limit - cost
    end = bisect_right(window.sizes, left)
    start = max(0, end - _NUM_LOOKED_AT)
    numbers, left, cost_left = choose(
        window.sizes[start:end][::-1], left, window.costs[start:end][::-1], cost_left
    )
    for number in reversed(numbers):  # the largest of the candidates is number 0
        window.take(end - 1 - number, pack)
    while left >= window.smallest and cost_left >= least_cost:
        number = window.next_that_fits(left, cost_left)
        if number < 0:
            break
        size, cost = window.take(number, pack)
        left, cost_left = left - size, cost_left - cost
    is_full = left * _GOOD_SHARE <= measures.size_limit or (
        measures.some_are_free and cost_left * _GOOD_SHARE <= measures.cost_limit
    )
    return _Filled(places=pack, left=left, is_full=is_full)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Window:
    """Samples that are in no pack yet, by rising size and, among equal sizes, cost."""

    places: list[int]
    sizes: list[int]
    costs: list[int]

    @property
    def smallest(self) -> float:
        """Least size."""
        return self.sizes[0] if self.sizes else math.inf

    def take(self, number: int, pack: list[int]) -> tuple[int, int]:
        """Move one sample to the end of `pack`; return its size and cost."""
        pack.append(self.places.pop(number))
        return self.sizes.pop(number), self.costs.pop(number)

    def next_that_fits(self, room: int, cost_room: int) -> int:
        """Return the number of the largest sample that fits; -1 if none does."""
        stop = bisect_right(self.sizes, room)
        while stop:
            start = bisect_left(self.sizes, self.sizes[stop - 1], 0, stop)
            found = bisect_right(self.costs, cost_room, start, stop)
            if found > start:
                return found - 1
            stop = start
        return -1
