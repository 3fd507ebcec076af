"""The config that a checkpoint binds: its fingerprint, and what may change."""

from pipeline.train.checkpoints.lasting_config import describe_changes, fingerprint, lasting_config
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import OptimizerConfig


def test_fingerprint_ignores_what_does_not_change_the_learning():
    one = lasting_config(TrainConfig(num_steps=5), 5)
    other = lasting_config(TrainConfig(num_steps=5, device="cpu", log_every_steps=1), 5)
    assert fingerprint(one) == fingerprint(other)
    changed = TrainConfig(num_steps=5, optimizer=OptimizerConfig(learning_rate=1.0))
    assert describe_changes(one, lasting_config(changed, 5)) == [
        "optimizer.learning_rate: 0.0001 then, 1.0 now"
    ]


def test_epochs_and_the_steps_they_come_to_are_one_config():
    assert lasting_config(TrainConfig(num_epochs=2), 5) == lasting_config(
        TrainConfig(num_steps=5), 5
    )
