"""A phase has the values of its training for the keys that it leaves out."""

from __future__ import annotations

from slurm_jobs.commands.resuming.given_spec import spec_of
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import OptimizerConfig
from slurm_jobs.formats.configs.training_phases import as_training
from tests.slurm_jobs.commands.resuming.given_overrides import TRAIN, MakeRun, make

__all__ = ["make"]


def test_a_phase_follows_the_keys_of_its_training_that_it_left_out(make: MakeRun) -> None:
    phases = "phases: [{name: a, num_steps: 5, optimizer: {learning_rate: 1e-3}}]"
    optimizer = "optimizer: {weight_decay: 0.3, beta1: 0.8}"
    made = make(TRAIN.replace("num_steps: 10", f"{phases}, {optimizer}"))
    overrides = ["stages.train.config.optimizer.weight_decay=0.5"]
    values = spec_of(made, overrides, update_spec=False).spec.stages["train"].config
    phase = as_training(build_config(TrainConfig, values), 0)
    assert phase.optimizer == OptimizerConfig(learning_rate=1e-3, weight_decay=0.5, beta1=0.8)
    own = ["stages.train.config.phases.0.optimizer.weight_decay=0.1", *overrides]
    values = spec_of(made, own, update_spec=False).spec.stages["train"].config
    assert values["phases"][0]["optimizer"] == {"learning_rate": 1e-3, "weight_decay": 0.1}
