"""The preflight's arithmetic is what trainings hold, to the byte; see `cases_memory`."""

from __future__ import annotations

import pytest

from tests.pipeline.train.strategies.cases_memory import ACCUMULATING, STRATEGIES

EVEN = ("weights_bytes", "buffers_bytes", "gradients_bytes")
"""What is padded, and so as large on every rank."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_computed_state_is_what_a_step_leaves_behind_to_the_byte(by_rank, name):
    for rank, found in enumerate(by_rank):
        case = found[f"memory, {name}"]
        held = case["held"]
        computed = {key: case["computed"][key] for key in held}
        assert {key: held[key] for key in EVEN} == {key: computed[key] for key in EVEN}
        if rank == 0:
            assert held == computed
        assert 0 < held["optimizer_bytes"] <= computed["optimizer_bytes"]


def test_sharded_state_is_half_of_the_whole(found):
    whole, half = (found[f"memory, {name}"]["held"] for name in ("ddp", "fsdp2"))
    assert half["weights_bytes"] == pytest.approx(whole["weights_bytes"] / 2, rel=0.01)
    assert half["optimizer_bytes"] == pytest.approx(whole["optimizer_bytes"] / 2, rel=0.01)


def test_gradients_between_microbatches_are_whole_as_computed(by_rank):
    for found in by_rank:
        case = found[f"memory, {ACCUMULATING}"]
        assert case["held"] == case["computed"] > 0
