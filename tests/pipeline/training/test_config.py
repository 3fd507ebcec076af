"""What the train stage's config refuses."""

import pytest

from slurm_jobs.common.stage_config.train import TrainConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give exactly one"),
        ({"num_steps": 1, "num_epochs": 1.0}, "give exactly one"),
        ({"num_steps": 0}, "num_steps is 0"),
        ({"num_steps": 1, "num_lanes": 7}, "num_lanes is 7: give a divisor of global_batch_size"),
    ],
)
def test_config_refuses_by_name_value_and_remedy(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)
