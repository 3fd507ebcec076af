"""Config of training phases, each with its own data, length and learning rate."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from slurm_jobs.common.config_values import (
    Count,
    InputPath,
    Positive,
    SomeKeysOf,
    check_bounds,
    refuse,
    with_keys_of,
)
from slurm_jobs.common.stage_config.optimizer import OptimizerConfig, ScheduleConfig
from slurm_jobs.common.stage_config.profile import ProfileConfig
from slurm_jobs.common.stage_config.reading import BatchingConfig

if TYPE_CHECKING:
    from slurm_jobs.common.stage_config.train import TrainConfig

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
OWN = (
    "learn",
    "dataset",
    "global_batch_size",
    "num_microbatches",
    "batching",
    "optimizer",
    "schedule",
)
"""Fields of a training that a phase may override."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseConfig:
    """Phase of a training; missing keys are the training's, also within mappings."""

    name: str
    """Name of the phase, in results and folders: small letters, digits, `-` and `_`."""
    learn: tuple[str, ...] | None = None
    """Parts that learn in the phase, in the words of the training's `learn`, which cannot be set
    together with phases. Null: `adapters` if there are some, else `all`."""
    num_steps: Count | None = None
    """Optimizer steps; exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over its data set, rounded down to whole steps."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote, with the same processor as the other phases'."""
    global_batch_size: Count | None = None
    """Samples in one optimizer step."""
    num_microbatches: Count | Literal["auto"] | None = None
    """Number of pieces into which each rank cuts its share of a step; `auto` as in the training."""
    batching: Annotated[Mapping[str, Any], SomeKeysOf(BatchingConfig)] | None = None
    """Composition of batches and rows; missing keys are the training's."""
    optimizer: Annotated[Mapping[str, Any], SomeKeysOf(OptimizerConfig)] | None = None
    """AdamW's settings; missing keys are the training's. Its state starts empty in each phase."""
    schedule: Annotated[Mapping[str, Any], SomeKeysOf(ScheduleConfig)] | None = None
    """Learning rate over the phase's own steps; missing keys are the training's."""

    def __post_init__(self) -> None:
        """Check that the phase can run; errors name field, value and remedy."""
        check_bounds(self)
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name):
            yield f"name is {self.name!r}: use small letters, digits, - and _ (projector)"
        if (self.num_steps is None) == (self.num_epochs is None):
            given = "neither is" if self.num_steps is None else "both are"
            yield f"phase {self.name}: of num_steps and num_epochs {given} given: give exactly one"


def own_values(config: TrainConfig, phase: PhaseConfig) -> dict[str, Any]:
    """Return the values that a phase overrides, by the names of the training's fields.

    Mappings are complete: their missing keys are the training's.
    """
    given = {name: getattr(phase, name) for name in OWN}
    return {
        name: with_keys_of(getattr(config, name), value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }


def as_training(config: TrainConfig, number: int) -> TrainConfig:
    """Return the config of a training with only the phase `number`, counted from 0.

    Raises:
        ValueError: the phase is invalid as a training.
    """
    phase = config.phases[number]
    learns_adapters = phase.learn is None or "adapters" in phase.learn
    return dataclasses.replace(
        config,
        phases=(),
        adapters=config.adapters if learns_adapters else None,
        # Also without it: the hash of the base contains it.
        quantize=config.quantize if learns_adapters else None,
        profile=ProfileConfig(),  # its steps are those of all phases
        seed=config.seed + number,  # or each phase would begin with the samples of the one before
        num_steps=phase.num_steps,
        num_epochs=phase.num_epochs,
        **own_values(config, phase),
    )
