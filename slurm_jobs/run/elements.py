"""Mapping between elements of a job array and slices. PURE.

If the site's limits allow it, the number of an element equals its slice, so that squeue and
`status` show the same numbers. Otherwise elements are numbered from 0, and each processes
`slices_per_task` slices in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def array_indices(slices: Sequence[int], slices_per_task: int | None) -> tuple[int, ...]:
    """Return the numbers of the elements that work on `slices`; both ascending."""
    if slices_per_task is None:
        return tuple(slices)
    return tuple(range(-(-len(slices) // slices_per_task)))


def slices_of_element(
    slices: Sequence[int], slices_per_task: int | None, index: int
) -> tuple[int, ...]:
    """Return the slices of element `index`, in processing order."""
    if slices_per_task is None:
        return (index,)
    return tuple(slices[index * slices_per_task : (index + 1) * slices_per_task])


def element_of_slice(slices: Sequence[int], slices_per_task: int | None, slice_index: int) -> int:
    """Return the element that works on a slice."""
    if slices_per_task is None:
        return slice_index
    return bisect_left(slices, slice_index) // slices_per_task
