"""Sets of array indices in Slurm's notation: read as they were written, and bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.index_ranges import parse_ranges, ranges_text


@given(st.sets(st.integers(min_value=0, max_value=10_000)))
def test_ranges_say_exactly_the_numbers_that_they_were_made_from(numbers: set[int]) -> None:
    ordered = tuple(sorted(numbers))
    text = ranges_text(ordered)
    assert (parse_ranges(text) if text else ()) == ordered


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("7", (7,)),
        ("0-3,7", (0, 1, 2, 3, 7)),
        ("0-3%2", (0, 1, 2, 3)),
        ("0-9:3", (0, 3, 6, 9)),
        ("1-4:2,8%1", (1, 3, 8)),
    ],
)
def test_slurms_own_forms_are_understood(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_ranges(text) == numbers


@pytest.mark.parametrize("text", ["0-9999999999", f"2,0-{10**30}", f"{10**30}", "0-4", "9-5:-1"])
def test_numbers_beyond_a_bound_are_refused_and_never_made(text: str) -> None:
    with pytest.raises(ValueError, match="beyond 3"):
        parse_ranges(text, below=4)
    assert parse_ranges("0-1,3", below=4) == (0, 1, 3)


def test_neighbours_are_joined() -> None:
    assert ranges_text([0, 1, 2, 4, 6, 7]) == "0-2,4,6-7"
