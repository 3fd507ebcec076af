"""The verdict of a step, which all ranks share."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pipeline.train.verdict import judge
from tests.pipeline.train.other_rank import OtherRank


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", ["loss", "norm", "other rank"])
def test_one_number_that_is_not_finite_makes_the_verdict_of_all_ranks_bad(value, place):
    numbers = {"loss": 2.0, "norm": 3.0, **({place: value} if place != "other rank" else {})}
    verdict = judge(
        torch.tensor(numbers["loss"]),
        torch.tensor(numbers["norm"]),
        None,
        OtherRank(is_bad=place == "other rank"),
    )
    assert verdict.is_bad.item() == 1.0
    assert not verdict.read().is_finite


def test_the_loss_is_summed_over_ranks_and_the_local_numbers_stay():
    other = OtherRank(is_bad=False)
    other.numbers[0] = 1.5
    verdict = judge(torch.tensor(2.0), torch.tensor(3.0), torch.tensor(8.0), other).read()
    assert (verdict.is_finite, verdict.loss, verdict.local_loss) == (True, 3.5, 2.0)
    assert (verdict.grad_norm, verdict.scale) == (3.0, 8.0)


def test_losses_of_groups_are_summed_over_ranks_and_change_nothing_else():
    numbers = torch.tensor(2.0), torch.tensor(3.0), None
    alone = judge(*numbers, OtherRank(is_bad=False)).read()
    grouped = judge(*numbers, OtherRank(is_bad=False), torch.tensor([0.5, 1.25])).read()
    assert alone.group_losses == []
    assert grouped.group_losses == [0.5, 1.25]
    assert replace(grouped, group_losses=[]) == alone
