"""The learning rate as a function of the step."""

import pytest

from pipeline.train.loop import learning_rate_at
from slurm_jobs.shared.configs.training_parts import ScheduleConfig


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
