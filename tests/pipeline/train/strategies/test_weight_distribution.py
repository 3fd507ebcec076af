"""Weights that rank 0 has read, and the others get."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.strategies.weight_distribution import check_can_be_shared
from slurm_jobs.base.errors import StageConfigError


def test_every_rank_has_all_weights_buffers_and_ties_that_rank_0_has_read(by_rank):
    for found in by_rank:
        case = found["loaded once"]
        assert case["different"] == []
        assert case["num"] == case["num_expected"] > 50
        assert case["is_tied"]


def test_a_tensor_that_is_no_buffer_is_refused_before_anything_is_sent():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        check_can_be_shared(model)
        model[0].table = torch.zeros(2)
    with pytest.raises(StageConfigError, match=r"0\.table cannot be sent from rank 0.*ddp"):
        check_can_be_shared(model)
