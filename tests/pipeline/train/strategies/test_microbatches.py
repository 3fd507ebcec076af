"""Ranks find one number of microbatches together, and learn as if nothing had been tried."""

from __future__ import annotations

import pytest

from tests.pipeline.train.strategies.cases_microbatches import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_rank_with_the_least_memory_decides_for_all(by_rank, strategy):
    cases = [found[f"{strategy}, microbatches for unequal memory"] for found in by_rank]
    assert [case.get("error") for case in cases] == [None, None]
    assert [case["roomy"] for case in cases] == [1, 1]
    assert [case["settled"] for case in cases] == [[2, 2], [2, 2]]
    assert cases[0]["num_kept"] == [1.0], "by rank 0 alone"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trials_on_two_ranks_leave_no_trace_in_the_weights(found, strategy):
    tried = found[f"{strategy}, microbatches for unequal memory"]
    # Files of accelerate learn what ours do, bit for bit.
    given = found[f"{strategy.removeprefix('accelerate ')}, 2 microbatches"]
    assert tried["losses"] == given["losses"]
    assert tried["weights"] == given["weights"]
