"""Exact fits from a pool of the oldest samples: for samples much smaller than a pack.

Each pack begins with the oldest sample of the pool and is filled by the first exact subset of
the others, oldest first. So no sample waits for more packs than the pool has entries, and the
order of the samples is nearly kept.
"""

from __future__ import annotations

from pipeline.data.packing.sample_costs import Measures, choose
from pipeline.data.packing.subset_sum import fill

POOL_SIZE = 64
"""Limit of packs that start before a sample of the pool is used."""


def pack_by_pool(measures: Measures) -> list[list[int]]:
    """Return packs: lists of the samples' positions."""
    pool = _Pool(measures)
    packs = []
    while pool.places:
        packs.append(pool.take_pack())
    return packs


class _Pool:
    """Samples to choose from, oldest first, as parallel lists."""

    __slots__ = ("costs", "measures", "next_place", "pack", "places", "sizes", "sum_of_sizes")

    def __init__(self, measures: Measures) -> None:
        self.measures = measures
        self.places: list[int] = []
        self.sizes: list[int] = []
        self.costs: list[int] = []
        self.next_place = 0
        self.sum_of_sizes = 0
        self.pack: list[int] = []
        self._refill()

    def _refill(self) -> None:
        start = self.next_place
        stop = min(len(self.measures), start + POOL_SIZE - len(self.places))
        if stop > start:
            sizes = self.measures.sizes[start:stop]
            self.places += range(start, stop)
            self.sizes += sizes
            self.costs += self.measures.costs[start:stop]
            self.sum_of_sizes += sum(sizes)
            self.next_place = stop

    def _take(self, number: int) -> None:
        self.pack.append(self.places.pop(number))
        del self.costs[number]
        self.sum_of_sizes -= self.sizes.pop(number)

    def take_pack(self) -> list[int]:
        """Take the samples of one pack from the pool, and refill it."""
        self.pack = []
        room = self.measures.size_limit - self.sizes[0]
        cost_room = self.measures.cost_limit - self.costs[0]
        self._take(0)
        # If a pack holds more samples than the pool, the oldest are added until the pool has four
        # times the remaining room: enough to choose from.
        while self.next_place < len(self.measures) and 4 * room > self.sum_of_sizes:
            self._refill()
            size, cost = self.sizes[0], self.costs[0]
            if size > room or cost > cost_room:
                break
            room, cost_room = room - size, cost_room - cost
            self._take(0)
        chosen, _, cost_left = choose(self.sizes, room, self.costs, cost_room)
        for number in chosen:
            self._take(number)
        if self.measures.some_are_free and cost_left:
            # Images fill packs: add samples without images, as far as tokens allow.
            free = [number for number, size in enumerate(self.sizes) if not size]
            chosen, _ = fill([self.costs[number] for number in free], cost_left)
            for number in chosen:
                self._take(free[number])
        self._refill()
        return self.pack
