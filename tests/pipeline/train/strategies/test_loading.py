"""Weights that rank 0 alone has read, on all ranks."""

import pytest
import torch

from pipeline.train.strategies import check_can_be_shared
from slurm_jobs.shared.errors import StageConfigError


def test_every_rank_has_all_weights_and_buffers_and_ties(by_rank):
    for found in by_rank:
        case = found["loaded once"]
        assert case["different"] == []
        assert case["num"] == case["num_expected"] > 50
        assert case["is_tied"]


def test_models_of_other_shapes_are_refused_on_all_ranks(by_rank):
    for found in by_rank:
        message = found["other shapes on rank 1"]["error"]
        assert "rank 1 has built other weights than rank 0 (language.lm_head.weight" in message


def test_all_ranks_fail_where_rank_0_cannot_read_the_model(by_rank):
    for found in by_rank:
        message = found["no model on rank 0"]["error"]
        assert message.startswith("StageConfigError: model ")
        assert "/nothing cannot be loaded" in message


def test_a_tensor_that_is_no_buffer_is_refused_before_anything_is_sent():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        check_can_be_shared(model)
        model[0].table = torch.zeros(2)
    with pytest.raises(StageConfigError, match=r"0\.table cannot be sent from rank 0.*ddp"):
        check_can_be_shared(model)
