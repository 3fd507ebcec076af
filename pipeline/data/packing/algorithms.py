"""Strategies by name: pure functions from samples in their order to packs.

Each gets lengths as lists, because it reads them one at a time, for one stretch of the order;
`epoch_packs` knows which samples these are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.exact_packing import exact
from pipeline.data.permutation import make_permutation

Strategy = Callable[[list[int], list[int], PackBudget], list[list[int]]]
"""Maps tokens and images of samples, each within the budget and with at least one token, to packs:
lists of the samples' positions."""

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
) -> list[list[int]]:
    """Put one sample into each pack: both `none` and `constrained`, which pad differently.

    `none` pads to the longest of a batch, `constrained` to the budget.
    """
    return [[place] for place in range(len(num_tokens))]


def greedy(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> list[list[int]]:
    """Pack by next fit: samples in order, a new pack when the next one does not fit."""
    max_images = _image_limit(num_images, budget)
    packs: list[list[int]] = []
    tokens = images = 0
    for place, (more_tokens, more_images) in enumerate(zip(num_tokens, num_images, strict=True)):
        tokens, images = tokens + more_tokens, images + more_images
        if not packs or tokens > budget.max_tokens or images > max_images:
            packs.append([])
            tokens, images = more_tokens, more_images
        packs[-1].append(place)
    return packs


def ffd(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    chunk_size: int = CHUNK_SIZE,
) -> list[list[int]]:
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
    return packs


def bfd(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    chunk_size: int = CHUNK_SIZE,
) -> list[list[int]]:
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
    return packs


def knapsack(
    num_tokens: list[int],
    num_images: list[int],
    budget: PackBudget,
    num_packs: int = KNAPSACK_PACKS,
) -> list[list[int]]:
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
    return packs


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
