"""Optimizers of bitsandbytes learn the same, sharded or not; see `cases_optimizers`."""

from __future__ import annotations

import pytest
import torch

from tests.pipeline.train.strategies.cases_optimizers import STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES)
def test_updates_of_shards_are_those_of_the_whole(found, name):
    case, torch_s = found[f"32-bit of bitsandbytes, {name}"], found["32-bit, single"]
    assert case["losses"] == pytest.approx(torch_s["losses"], rel=1e-6)
    assert case["norms"] == pytest.approx(torch_s["norms"], rel=1e-5)


@pytest.mark.parametrize("name", [*STRATEGIES, "single", "fp16"])
def test_8_bit_state_learns_what_32_bit_state_does_within_its_rounding(found, name):
    losses, full = found[f"8-bit, {name}"]["losses"], found["32-bit, single"]["losses"]
    assert losses == pytest.approx(full, rel=2e-3)
    assert losses != pytest.approx(full, rel=1e-6)
    assert losses[-1] < losses[0]


def test_every_rank_of_ddp_rounds_alike(by_rank):
    weights = {found["8-bit, ddp"]["weights"] for found in by_rank}
    assert len(weights) == 1


def test_bitsandbytes_itself_cannot_update_what_is_sharded(found):
    assert "DTensor" in found["8-bit, unwrapped"]["said"]


def test_each_rank_takes_its_own_rows_of_a_whole_state(by_rank):
    cases = [found["8-bit, own part of the whole"] for found in by_rank]
    assert [case["num"] for case in cases] == [65 * 128, 64 * 128]
    assert max(case["difference"] for case in cases) < 0.02


def test_updates_of_local_tensors_are_those_of_dtensors_bit_for_bit_on_two_ranks(by_rank):
    cases = [found["local updates"] for found in by_rank]
    assert all(case["is_same_norm"] and case["are_same_weights"] for case in cases), cases
    torch.manual_seed(1)
    gradients = [torch.randn(shape) for shape in ((7, 5), (3,), (1, 4))]
    whole = float(torch.nn.utils.get_total_norm(gradients))
    assert [case["norm"] for case in cases] == pytest.approx([whole] * 2, rel=1e-6)
