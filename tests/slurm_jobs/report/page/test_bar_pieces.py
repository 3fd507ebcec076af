"""Pieces of a bar: the wait ends with the job's start, whatever the node's clock says."""

from __future__ import annotations

import pytest

from slurm_jobs.report.page.bar_pieces import pieces
from tests.slurm_jobs.report.page.test_crowd import bar


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"eligible_unix_s": 0, "job_start_unix_s": 6}, ["queued 0-6", "startup 6-10"]),
        ({"eligible_unix_s": 6, "job_start_unix_s": 6}, ["startup 6-10"]),
        ({"eligible_unix_s": 0, "job_start_unix_s": 13}, ["queued 0-10"]),  # the clock is behind
        ({"job_start_unix_s": 6}, ["startup 6-10"]),
        ({"eligible_unix_s": 0}, ["queued 0-10"]),  # no start is known
        ({}, []),
    ],
)
def test_the_time_before_an_attempt_is_a_wait_or_the_start_up(times, expected):
    parts = [f"{p.kind} {p.start_unix_s:g}-{p.end_unix_s:g}" for p in pieces(bar(10, 20, **times))]
    assert parts == [*expected, "completed 10-20"]
