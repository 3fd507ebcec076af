"""Config of trackers for the course of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from slurm_jobs.common.config_values import Count, check_bounds

TrackerName = Literal[
    "tensorboard",
    "wandb",
    "mlflow",
    "aim",
    "clearml",
    "comet_ml",
    "dvclive",
    "swanlab",
    "trackio",
]
"""Trackers that accelerate supports."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackersConfig:
    """Trackers to which rank 0 reports the course of a training; none by default."""

    use: tuple[TrackerName, ...] = ()
    """Names of trackers. The stage's Python needs the package of the same name; `tensorboard` is a
    part of `slurm-jobs[train]`."""
    every_steps: Count = 10
    """Steps between two entries."""
    project: str = "slurm-jobs"
    """Name of the project, or the experiment, in the tracking service."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further arguments, by tracker, of the class in `accelerate.tracking`, which passes them to
    the package: `wandb: {mode: offline}`. Keys of an account belong in the environment."""

    def __post_init__(self) -> None:
        """Check that the trackers can run; errors name field, value and remedy."""
        check_bounds(self)
        if len(set(self.use)) < len(self.use):
            message = f"use is {', '.join(self.use)}: name each tracker once"
            raise ValueError(message)
        if unused := self.options.keys() - set(self.use):
            message = (
                f"options of {', '.join(sorted(unused))} are given, which use does not name: add "
                "it to use, or leave them out"
            )
            raise ValueError(message)
