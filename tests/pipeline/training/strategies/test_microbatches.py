"""Ranks find one number of microbatches together, and learn as if nothing had been tried."""

from __future__ import annotations

import pytest

from tests.pipeline.training.strategies.cases_microbatches import STRATEGIES


def test_the_rank_with_the_least_memory_decides_for_all(by_rank):
    cases = [found["fsdp2, microbatches for unequal memory"] for found in by_rank]
    assert [case["roomy"] for case in cases] == [1, 1]
    assert [case["settled"] for case in cases] == [[2, 2], [2, 2]]
    assert [case["kept"] for case in cases] == [["microbatches.json"], []]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trials_on_two_ranks_leave_no_trace_in_the_weights(by_rank, strategy):
    tried = [found[f"{strategy}, microbatches for unequal memory"] for found in by_rank]
    assert tried[0]["settled"] == tried[1]["settled"]
    number = tried[0]["settled"][0]
    given = by_rank[0][strategy if number == 1 else f"{strategy}, {number} microbatches"]
    assert tried[0]["losses"] == given["losses"]
    assert tried[0]["weights"] == given["weights"]
