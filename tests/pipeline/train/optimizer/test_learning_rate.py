"""The learning rate of each step."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.optimizer.learning_rate import learning_rate_at, set_learning_rate
from pipeline.train.optimizer.optimizers import make_optimizer
from slurm_jobs.formats.configs.training_parts import OptimizerConfig, ScheduleConfig


def test_learning_rate_of_a_step_is_the_one_that_was_set_last():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw_8bit", weight_decay=0.0))
    set_learning_rate(optimizer, 0.25)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.25)


def rates(kind, warmup_share=0.1, num_steps=100):
    schedule = ScheduleConfig(kind=kind, warmup_share=warmup_share)
    return [
        learning_rate_at(step, num_steps=num_steps, peak=1.0, schedule=schedule)
        for step in range(num_steps)
    ]


def test_learning_rate_rises_to_its_peak_and_falls():
    values = rates("onecycle")
    assert values[0] == pytest.approx(0.1)
    assert values[9] == values[10] == 1.0
    assert values[10:] == sorted(values[10:], reverse=True)
    assert values[-1] < 0.002


@pytest.mark.parametrize(("kind", "last"), [("cosine", 0.1), ("constant", 1.0)])
def test_schedules_end_where_they_say(kind, last):
    assert rates(kind, warmup_share=0.0)[-1] == pytest.approx(last, abs=1e-3)
