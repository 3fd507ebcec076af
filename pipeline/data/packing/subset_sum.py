"""Search for samples that fill the rest of a pack exactly, or as far as possible.

A subset sum over one big integer whose bit r means "r can be left over" (Bellman; as a bitset:
Pisinger, "Dynamic programming on the word RAM", Algorithmica 35, 2003). Python shifts four
thousand bits in a tenth of a microsecond. If the answer exceeds the second limit, a table of
the least cost of each rest gives one that keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
