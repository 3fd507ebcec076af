"""Rows of a manifest that one slice preprocesses."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.preprocess.slice_rows import slice_range


@given(st.integers(0, 200), st.integers(1, 30))
def test_slices_cover_every_row_once(num_rows: int, num_slices: int) -> None:
    rows = [row for i in range(num_slices) for row in slice_range(num_rows, i, num_slices)]
    assert rows == list(range(num_rows))
