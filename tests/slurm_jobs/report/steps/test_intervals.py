"""Sets of time as intervals: what is left of them, and what they add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.report.steps.intervals import budget, max_overlap, merge, subtract, total_s
from tests.slurm_jobs.report.builders import seconds_of

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(
        lambda pair: (float(min(pair)), float(max(pair)))
    ),
    max_size=8,
)


def seconds_covered(parts):
    return {s for start, end in parts for s in range(int(start), int(end))}


@given(intervals, intervals)
def test_subtract_keeps_exactly_the_seconds_of_the_whole_that_no_part_has(whole, parts):
    left = subtract(merge(whole), merge(parts))
    assert seconds_covered(left) == seconds_covered(whole) - seconds_covered(parts)
    assert total_s(left) == len(seconds_covered(left))


@given(intervals, intervals)
def test_a_budget_adds_up_to_the_whole_and_earlier_claims_win(first, second):
    shares = budget(0.0, 50.0, [("a", "a", first), ("b", "b", second)], ("rest", "rest"))
    assert sum(s.share for s in shares) == pytest.approx(1.0)
    assert seconds_of(shares).get("a", 0.0) == len(seconds_covered(first) & set(range(50)))


def test_overlap_counts_what_runs_at_once_and_not_what_touches():
    assert max_overlap([(0, 2), (1, 3), (2, 4)]) == 2
    assert max_overlap([]) == 0


def test_an_empty_span_has_no_budget():
    assert budget(5.0, 5.0, [], ("rest", "rest")) == ()
