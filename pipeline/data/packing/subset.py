"""The search for samples that fill what is left of a pack: exactly, or as far as they can.

A subset-sum over one big integer whose bit r says "r can be left over" (Bellman;
as a bitset: Pisinger, "Dynamic programming on the word RAM", Algorithmica 35,
2003). Python shifts four thousand bits in a tenth of a microsecond. Where the
answer breaks the second limit, a table of the least that each rest costs finds
one that keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fill(sizes: Sequence[int], room: int) -> tuple[list[int], int]:
    """Places of sizes whose sum comes closest to `room` from below, and what is left.

    The first sum that is exact ends the search, so that earlier sizes are
    preferred to later ones.

    Args:
        sizes: Integers of 0 or more; one of 0 is never chosen.
        room: An integer of 0 or more.

    Returns:
        Places in `sizes`, falling, and `room` minus the sum of these sizes.
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
    """As `fill`, of the subsets whose costs sum to `cost_room` at most.

    Args:
        sizes: Integers of 0 or more.
        room: For the sizes.
        costs: Integers of 0 or more, one a size.
        cost_room: For the costs.
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
    """What of `room` all sizes together take, and the rest: memory follows the first."""
    total = 0
    for size in sizes:  # not `sum`: a few fill the room as a rule, of thousands
        total += size
        if total >= room:
            return room, 0
    return total, room - total
