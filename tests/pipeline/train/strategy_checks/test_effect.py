"""Optimizers whose parameters are not those that learn."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.strategy_checks.effect import check_optimizer
from slurm_jobs.base.errors import StageConfigError


def test_a_parameter_in_two_groups_is_named():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": [model.bias]})
    with pytest.raises(StageConfigError, match="bias: in several groups"):
        check_optimizer(model, optimizer)


def test_a_frozen_parameter_needs_no_group():
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(requires_grad=False)
    check_optimizer(model, torch.optim.SGD([model.weight]))
