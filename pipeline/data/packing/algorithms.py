"""Strategies by name: pure functions from samples in their order to packs.

Each gets lengths as lists, because it reads them one at a time, for one stretch of the order;
`plan` knows which samples these are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from pipeline.data.packing.budget import PackBudget
from pipeline.data.permutation import make_permutation

_MAX_PARTS = 64
"""Largest number of parts of a pack to which sizes are rounded."""


def fewest_packs(num_tokens: np.ndarray, num_images: np.ndarray, budget: PackBudget) -> int:
    """Return a lower bound on the number of packs: the larger one of tokens and of images.

    Each is the greatest of three bounds, on sizes and limit divided by the sizes' greatest
    common divisor: ceil(sum / limit); L2 of Martello and Toth (Discrete Applied Mathematics 28,
    1990), which uses that no two samples larger than half of a pack share one and that not
    everything fits next to them; and dual feasible functions of Fekete and Schepers
    (Mathematical Programming 91, 2001), which use, for example, that a pack of 16 tiles' length
    never holds three samples with six tiles and a text.

    Args:
        num_tokens: Integers of 1 or more, [num_samples], none above the budget.
        num_images: Integers of 0 or more, [num_samples], none above the budget.
        budget: Budget of a pack.
    """
    bound = _bound_of(num_tokens, budget.max_tokens)
    if budget.max_images is not None:
        bound = max(bound, _bound_of(num_images, budget.max_images))
    return bound


def _bound_of(sizes: np.ndarray, limit: int) -> int:
    divisor = int(np.gcd.reduce(sizes)) if len(sizes) else 0
    if divisor == 0:
        return 0
    limit //= divisor
    numbers = np.bincount(np.asarray(sizes, dtype=np.int64) // divisor, minlength=limit + 1)
    return max(
        -(-int((numbers * np.arange(limit + 1)).sum()) // limit),
        _large_bound(numbers, limit),
        *(_rounded_bound(numbers, limit, parts) for parts in range(1, _MAX_PARTS)),
    )


def _large_bound(numbers: np.ndarray, limit: int) -> int:
    """Return L2 of samples by size.

    For each least size: samples that leave no room for a sample of that size have a pack each,
    those larger than half have one too, and the others must fit into the remaining room or need
    more packs.
    """
    counts = np.cumsum(numbers)
    sums = np.cumsum(numbers * np.arange(limit + 1))
    half = limit // 2
    least = np.arange(half + 1)
    alone = counts[limit] - counts[limit - least]
    num_large = counts[limit - least] - counts[half]
    large_sum = sums[limit - least] - sums[half]
    small_sum = sums[half] - np.where(least > 0, sums[least - 1], 0)
    beyond = np.maximum(0, small_sum - (num_large * limit - large_sum))
    return int((alone + num_large + (beyond + limit - 1) // limit).max())


def _rounded_bound(numbers: np.ndarray, limit: int, parts: int) -> int:
    """Return the bound by u^(parts) after U^(e), for the best e: functions of Fekete and Schepers.

    u rounds a size x (of a pack of 1) to floor((parts + 1) * x) / parts, unless (parts + 1) * x
    is whole. U drops sizes below e and counts those above 1 - e as 1. The content of a pack
    never sums to more than 1 after either, so the sum of all samples is a bound.
    """
    sizes = np.arange(limit + 1)
    scaled = (parts + 1) * sizes
    values = np.where(scaled % limit == 0, sizes * parts, scaled // limit * limit)
    counts = np.cumsum(numbers)
    sums = np.cumsum(numbers * values)
    least = np.arange(limit // 2 + 1)
    alone = counts[limit] - counts[limit - least]
    between = sums[limit - least] - np.where(least > 0, sums[least - 1], 0)
    whole = parts * limit
    return int((alone + (between + whole - 1) // whole).max())


# Search for samples that fill the rest of a pack exactly, or as far as possible.
#
# A subset sum over one big integer whose bit r means "r can be left over" (Bellman; as a bitset:
# Pisinger, "Dynamic programming on the word RAM", Algorithmica 35, 2003). Python shifts four
# thousand bits in a tenth of a microsecond. If the answer exceeds the second limit, a table of
# the least cost of each rest gives one that keeps it.


def fill(sizes: Sequence[int], room: int) -> tuple[list[int], int]:
    """Return positions of sizes whose sum comes closest to `room` from below, and the rest.

    The first exact sum ends the search, so earlier sizes are preferred to later ones.

    Args:
        sizes: Integers of 0 or more; one of 0 is never chosen.
        room: An integer of 0 or more.

    Returns:
        Positions in `sizes`, falling, and `room` minus the sum of these sizes.
    """
    room, spare = _usable(sizes, room)
    reach = 1 << room
    history = [reach]
    for size in sizes:
        if reach & 1:
            break
        reach |= reach >> size
        history.append(reach)
    left = (reach & -reach).bit_length() - 1
    chosen = []
    rest, bit = left, 1 << left
    for place in range(len(history) - 2, -1, -1):
        if rest == room:
            break
        if not history[place] & bit:
            chosen.append(place)
            rest += sizes[place]
            bit = 1 << rest
    return chosen, left + spare


def fill_within(
    sizes: Sequence[int], room: int, costs: Sequence[int], cost_room: int
) -> tuple[list[int], int]:
    """Run `fill` over the subsets whose costs sum to `cost_room` at most.

    Args:
        sizes: Integers of 0 or more.
        room: Limit of the sizes.
        costs: Integers of 0 or more, one per size.
        cost_room: Limit of the costs.
    """
    room, spare = _usable(sizes, room)
    too_much = cost_room + 1
    least = np.full(room + 1, too_much, dtype=np.int64)  # of the cost, for each rest
    least[room] = 0
    history = [least]
    for size, cost in zip(sizes, costs, strict=True):
        if least[0] < too_much:
            break
        if 0 < size <= room:
            taken = least[size:] + cost
            least = least.copy()
            np.minimum(least[: room + 1 - size], taken, out=least[: room + 1 - size])
        history.append(least)
    left = int(np.argmax(least < too_much))
    chosen = []
    rest = left
    for place in range(len(history) - 2, -1, -1):
        if history[place][rest] != history[place + 1][rest]:
            chosen.append(place)
            rest += sizes[place]
    return chosen, left + spare


def _usable(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """Return how much of `room` all sizes can use, and the rest: memory follows the first."""
    total = 0
    for size in sizes:  # not `sum`: usually a few of thousands fill the room
        total += size
        if total >= room:
            return room, 0
    return total, room - total


# Samples as sizes and costs: packs are filled by the scarcer of tokens and images.


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """Space that samples take in a pack: sizes that should fill it, and costs that must fit."""

    sizes: list[int]
    costs: list[int]
    size_limit: int
    cost_limit: int
    some_are_free: bool
    """True if some sizes are 0: images fill packs, and some samples have none."""

    def __len__(self) -> int:
        return len(self.sizes)

    def head(self, num_samples: int) -> Measures:
        """Return the measures of the first samples."""
        sizes, costs = self.sizes[:num_samples], self.costs[:num_samples]
        return replace(self, sizes=sizes, costs=costs)


def measure(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> Measures:
    """Return tokens as sizes and images as costs, or the reverse where images need more packs.

    Args:
        num_tokens: One per sample, at least 1.
        num_images: One per sample.
        budget: Budget of a pack.
    """
    max_tokens, max_images = budget.max_tokens, budget.max_images
    if max_images is None:  # then no number of images exceeds the limit
        num_images, max_images = [0] * len(num_tokens), 0
    if sum(num_images) * max_tokens > sum(num_tokens) * max_images:
        return Measures(
            sizes=num_images,
            costs=num_tokens,
            size_limit=max_images,
            cost_limit=max_tokens,
            some_are_free=0 in num_images,
        )
    return Measures(
        sizes=num_tokens,
        costs=num_images,
        size_limit=max_tokens,
        cost_limit=max_images,
        some_are_free=False,
    )


def choose(
    sizes: list[int], room: int, costs: list[int], cost_room: int
) -> tuple[list[int], int, int]:
    """Return positions of samples that fill `room` best within `cost_room`, and the rest of both.

    A good filling that ignores costs is used if it happens to keep the limit; only otherwise
    are costs searched, which takes ten times as long.
    """
    chosen, left = fill(sizes, room)
    cost_left = cost_room - sum([costs[place] for place in chosen])
    if cost_left < 0:
        chosen, left = fill_within(sizes, room, costs, cost_room)
        cost_left = cost_room - sum([costs[place] for place in chosen])
    return chosen, left, cost_left


# Exact fits from a pool of the oldest samples: for samples much smaller than a pack.
#
# Each pack begins with the oldest sample of the pool and is filled by the first exact subset of
# the others, oldest first. So no sample waits for more packs than the pool has entries, and the
# order of the samples is nearly kept.


POOL_SIZE = 64
"""Limit of packs that start before a sample of the pool is used."""


def pack_by_pool(measures: Measures) -> tuple[list[int], list[int]]:
    """Return the end of each pack in the second list, and that list: positions of the samples."""
    pool = _Pool(measures)
    ends: list[int] = []
    while pool.places:
        pool.take_pack()
        ends.append(len(pool.taken))
    return ends, pool.taken


class _Pool:
    """Samples to choose from, oldest first, as parallel lists."""

    __slots__ = ("costs", "measures", "next_place", "places", "sizes", "sum_of_sizes", "taken")

    def __init__(self, measures: Measures) -> None:
        self.measures = measures
        self.places: list[int] = []
        self.sizes: list[int] = []
        self.costs: list[int] = []
        self.next_place = 0
        self.sum_of_sizes = 0
        self.taken: list[int] = []
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
        self.taken.append(self.places.pop(number))
        del self.costs[number]
        self.sum_of_sizes -= self.sizes.pop(number)

    def take_pack(self) -> None:
        """Move one pack of samples from the pool to the end of `taken`, and refill."""
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


# Exact fits within a window, largest first: for samples of which few fill a pack.
#
# Minimum bin slack (Gupta and Ho, Production Planning and Control 10, 1999): each pack begins
# with the largest remaining sample and is filled by the first exact subset of the next smaller
# ones. So the small samples, which fill any room, are used last. Samples that fill badly at the
# end of a window return to the next one, a few times at most.


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
        deferred = set() if is_last else _to_defer(packs, first_window, window)
        carried = [place for number in sorted(deferred) for place in packs[number].places]
        first_window = {place: first_window.get(place, window) for place in carried}
        for number, pack in enumerate(packs):
            if number not in deferred:
                items += pack.places
                ends.append(len(items))
        start, window = stop, window + 1
    return ends, items


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


# Default strategy: packs that are filled exactly, by the search that suits the lengths.
#
# Where samples are much smaller than a pack, a pool of the oldest samples fills packs to the last
# token and nearly keeps their order. Where few samples fill a pack, the pool uses up the samples
# that fit and keeps the rest; a window sees enough of both. A trial on the first samples selects
# the search.


_TRIAL_SIZE = 8192
"""Samples on which the two searches are compared: two windows."""
_TOLERANCE = 1.001
"""The pool is preferred while it needs at most this factor more packs than the bound or windows."""


def exact(
    num_tokens: list[int], num_images: list[int], budget: PackBudget
) -> tuple[list[int], list[int]]:
    """Return packs filled exactly, or as far as a bounded wait allows; see `Strategy`."""
    search = pack_by_windows if windows_are_better(num_tokens, num_images, budget) else pack_by_pool
    return search(measure(num_tokens, num_images, budget))


def windows_are_better(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> bool:
    """Check whether the first samples need clearly fewer packs by windows than by the pool."""
    if not num_tokens:
        return False
    measures = measure(num_tokens, num_images, budget).head(_TRIAL_SIZE)
    num_packs = len(pack_by_pool(measures)[0])
    bound = fewest_packs(
        np.array(num_tokens[:_TRIAL_SIZE]), np.array(num_images[:_TRIAL_SIZE]), budget
    )
    if num_packs <= max(bound + 1, bound * _TOLERANCE):
        return False
    return len(pack_by_windows(measures)[0]) * _TOLERANCE < num_packs


Strategy = Callable[[list[int], list[int], PackBudget], tuple[list[int], list[int]]]
"""Maps tokens and images of samples, each within the budget and with at least one token, to the
end of each pack in a second list, and that list: positions of the samples, pack by pack."""

CHUNK_SIZE = 1024
"""Samples that `ffd` and `bfd` sort together; TRL's `pack_dataset` sorts 1,000, the default
batch of `datasets.map`."""
KNAPSACK_PACKS = 1024
"""nanoVLM collects this many packs' worth of tokens (`num_of_sequences`)."""
KNAPSACK_SPARES = 5
"""Number of packs beyond those their tokens need, to which nanoVLM deals them (`delta`)."""


def one_by_one(
    num_tokens: list[int],
    num_images: list[int],  # noqa: ARG001 - as every strategy
    budget: PackBudget,  # noqa: ARG001
) -> tuple[list[int], list[int]]:
    """Put one sample into each pack: both `none` and `constrained`, which pad differently.

    `none` pads to the longest of a batch, `constrained` to the budget; see
    `statistics.padding`.
    """
    return list(range(1, len(num_tokens) + 1)), list(range(len(num_tokens)))


def greedy(
    num_tokens: list[int], num_images: list[int], budget: PackBudget
) -> tuple[list[int], list[int]]:
    """Pack by next fit: samples in order, a new pack when the next one does not fit."""
    max_images = _image_limit(num_images, budget)
    ends: list[int] = []
    tokens = images = 0
    for place, (more_tokens, more_images) in enumerate(zip(num_tokens, num_images, strict=True)):
        tokens, images = tokens + more_tokens, images + more_images
        if place and (tokens > budget.max_tokens or images > max_images):
            ends.append(place)
            tokens, images = more_tokens, more_images
    return [*ends, len(num_tokens)] if num_tokens else [], list(range(len(num_tokens)))


def ffd(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[list[int], list[int]]:
    """Pack by first fit decreasing in chunks: longest first, each into the first pack it fits."""
    packs: list[list[int]] = []
    max_images = _image_limit(num_images, budget)
    for chunk in _chunks(len(num_tokens), chunk_size):
        tree = _RoomTree(len(chunk), budget.max_tokens)
        room_for_images = [max_images] * len(chunk)
        chunk_packs: list[list[int]] = [[] for _ in chunk]
        for place in _falling(chunk, num_tokens):
            pack = tree.first(num_tokens[place])
            while room_for_images[pack] < num_images[place]:
                pack = tree.first(num_tokens[place], pack + 1)
            chunk_packs[pack].append(place)
            room_for_images[pack] -= num_images[place]
            tree.take(pack, num_tokens[place])
        packs += [pack for pack in chunk_packs if pack]
    return _joined(packs)


def bfd(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[list[int], list[int]]:
    """Pack by best fit decreasing in chunks: longest first, each into the fullest pack it fits."""
    packs: list[list[int]] = []
    max_images = _image_limit(num_images, budget)
    for chunk in _chunks(len(num_tokens), chunk_size):
        rooms: list[tuple[int, int]] = []  # room and number of each pack, ascending
        first = len(packs)
        room_for_images: list[int] = []
        for place in _falling(chunk, num_tokens):
            number = bisect_left(rooms, (num_tokens[place], -1))
            while number < len(rooms) and room_for_images[rooms[number][1]] < num_images[place]:
                number += 1
            if number == len(rooms):
                room, pack = budget.max_tokens, len(room_for_images)
                packs.append([])
                room_for_images.append(max_images)
            else:
                room, pack = rooms.pop(number)
            packs[first + pack].append(place)
            room_for_images[pack] -= num_images[place]
            insort(rooms, (room - num_tokens[place], pack))
    return _joined(packs)


def knapsack(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    num_packs: int = KNAPSACK_PACKS,
) -> tuple[list[int], list[int]]:
    """Pack by nanoVLM's rule: longest first, each into the emptiest pack it fits.

    Source: `_balanced_greedy_knapsack` of huggingface/nanoVLM, data/advanced_datasets.py. It
    starts with `KNAPSACK_SPARES` packs more than the tokens need and shuffles them at the end.
    nanoVLM also adds a separator after each sample, which takes one more token; packs here need
    none.
    """
    max_images = _image_limit(num_images, budget)
    packs: list[list[int]] = []
    chunks = _chunks_of_tokens(num_tokens, num_packs * budget.max_tokens)
    for chunk_number, chunk in enumerate(chunks):
        tokens = sum([num_tokens[place] for place in chunk])
        num_dealt = -(-tokens // budget.max_tokens) + KNAPSACK_SPARES
        dealt: list[list[int]] = [[] for _ in range(num_dealt)]
        loads = [(0, pack) for pack in range(num_dealt)]
        images = [0] * num_dealt
        for place in _falling(chunk, num_tokens):
            load, pack = _emptiest(loads, images, max_images - num_images[place])
            if pack < 0 or load + num_tokens[place] > budget.max_tokens:
                if pack >= 0:
                    heappush(loads, (load, pack))
                load, pack = 0, len(dealt)
                dealt.append([])
                images.append(0)
            dealt[pack].append(place)
            images[pack] += num_images[place]
            heappush(loads, (load + num_tokens[place], pack))
        order = make_permutation(len(dealt), [chunk_number]).slice(0, len(dealt))
        packs += [dealt[pack] for pack in order if dealt[pack]]
    return _joined(packs)


def _emptiest(loads: list[tuple[int, int]], images: list[int], most_images: int) -> tuple[int, int]:
    """Pop the least loaded pack with at most this many images from a heap; -1 if none."""
    passed = []
    emptiest = (0, -1)
    while loads and emptiest[1] < 0:
        load = heappop(loads)
        if images[load[1]] <= most_images:
            emptiest = load
        else:
            passed.append(load)
    for load in passed:
        heappush(loads, load)
    return emptiest


STRATEGIES: dict[str, Strategy] = {
    "none": one_by_one,
    "constrained": one_by_one,
    "greedy": greedy,
    "ffd": ffd,
    "bfd": bfd,
    "knapsack": knapsack,
    "exact": exact,
}


class _RoomTree:
    """Tree over the room of a row of packs, with the greatest room of every half."""

    __slots__ = ("rooms", "width")

    def __init__(self, num_packs: int, room: int) -> None:
        self.width = 1 << (num_packs - 1).bit_length()
        self.rooms = [room] * (2 * self.width)

    def first(self, size: int, start: int = 0) -> int:
        """Return the first pack from `start` on with room for `size`; there must be one."""
        node = start + self.width
        while self.rooms[node] < size:
            while node & 1:
                node >>= 1
            node += 1
        while node < self.width:
            node *= 2
            node += self.rooms[node] < size
        return node - self.width

    def take(self, pack: int, size: int) -> None:
        """Use `size` of one pack's room."""
        node = pack + self.width
        self.rooms[node] -= size
        while node > 1:
            node >>= 1
            self.rooms[node] = max(self.rooms[2 * node], self.rooms[2 * node + 1])


def _image_limit(num_images: list[int], budget: PackBudget) -> int:
    return sum(num_images) if budget.max_images is None else budget.max_images


def _falling(chunk: range, sizes: list[int]) -> list[int]:
    """Return positions by falling size; equal sizes keep their order."""
    return sorted(chunk, key=sizes.__getitem__, reverse=True)


def _chunks(num_places: int, chunk_size: int) -> Iterator[range]:
    for start in range(0, num_places, chunk_size):
        yield range(start, min(start + chunk_size, num_places))


def _chunks_of_tokens(num_tokens: list[int], enough: int) -> Iterator[range]:
    """Yield runs of positions that end as soon as they have enough tokens."""
    start = tokens = 0
    for place, more in enumerate(num_tokens):
        tokens += more
        if tokens >= enough:
            yield range(start, place + 1)
            start, tokens = place + 1, 0
    if start < len(num_tokens):
        yield range(start, len(num_tokens))


def _joined(packs: list[list[int]]) -> tuple[list[int], list[int]]:
    ends: list[int] = []
    items: list[int] = []
    for pack in packs:
        items += pack
        ends.append(len(items))
    return ends, items
