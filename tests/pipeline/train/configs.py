"""Configs of trainings with all defaults but what a test names."""

from __future__ import annotations

from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig


def config_of(**values) -> TrainConfig:
    return build_config(TrainConfig, {"num_steps": 1, **values})
