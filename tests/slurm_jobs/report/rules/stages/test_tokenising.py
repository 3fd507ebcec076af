"""Tokenising is a finding where it is most of the work of preprocessing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.rules.stages.tokenising import slow_tokenising
from tests.slurm_jobs.report.rules.stages.run_data import data

__all__ = ["data"]


@pytest.mark.parametrize(
    ("work_s", "outcome"),
    [
        ({"decode": 40.0, "tokenise": 90.0, "write": 5.0}, "found"),
        ({"decode": 90.0, "tokenise": 40.0}, "clear"),
        ({"decode": 1.0, "tokenise": 9.0}, "clear"),  # seconds deserve no advice
        ({}, "abstained"),
    ],
)
def test_tokenising_is_found_where_it_is_most_of_the_work(data, work_s, outcome):
    found = slow_tokenising(replace(data, work_s=work_s))
    assert getattr(found, "outcome", "found") == outcome
    if outcome == "found":
        assert found.evidence == ("decode 40.0 s, tokenise 90.0 s, write 5.00 s",)
        assert found.ceiling.startswith("slices without tokenising: at most 3.00")
