"""Which element of a job array works on which slices. PURE.

Where the site's limits allow, an element's number is its slice's own, so that
squeue and `status` speak of the same thing. Where they do not, elements are
counted from 0 and each works through `slices_per_task` slices in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def array_indices(slices: Sequence[int], slices_per_task: int | None) -> tuple[int, ...]:
    """Numbers of the elements that work on `slices` (ascending), ascending."""
    if slices_per_task is None:
        return tuple(slices)
    return tuple(range(-(-len(slices) // slices_per_task)))


def slices_of_element(
    slices: Sequence[int], slices_per_task: int | None, index: int
) -> tuple[int, ...]:
    """The slices that element `index` works through, in order."""
    if slices_per_task is None:
        return (index,)
    return tuple(slices[index * slices_per_task : (index + 1) * slices_per_task])


def element_of_slice(slices: Sequence[int], slices_per_task: int | None, slice_index: int) -> int:
    """The element that works on a slice."""
    if slices_per_task is None:
        return slice_index
    return bisect_left(slices, slice_index) // slices_per_task
