"""Rows of a manifest that one slice preprocesses."""

from __future__ import annotations


def slice_range(num_rows: int, slice_index: int, num_slices: int) -> range:
    """Return the rows of one slice; the slices cover every row once, with sizes within one."""
    start = slice_index * num_rows // num_slices
    return range(start, (slice_index + 1) * num_rows // num_slices)
