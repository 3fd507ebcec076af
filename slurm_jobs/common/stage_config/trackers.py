"""Where the course of a training is written for people to look at."""

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
"""What accelerate can write to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackersConfig:
    """Trackers, which rank 0 tells of the course of a training; none by default."""

    use: tuple[TrackerName, ...] = ()
    """Which. The stage's Python needs the package of the same name; `tensorboard` is a part of
    `slurm-jobs[train]`."""
    every_steps: Count = 10
    """Steps between two entries."""
    project: str = "slurm-jobs"
    """What a service calls the project, or the experiment, that the run is a part of."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By tracker, further arguments of the class of `accelerate.tracking`, which gives them to
    the package: `wandb: {mode: offline}`. Keys of an account belong into the environment."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, naming field, value and remedy."""
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
