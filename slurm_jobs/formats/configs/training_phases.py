"""Phases and levels of a training, and the parts of a model that `learn` names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from slurm_jobs.formats.config import (
    CheckedConfig,
    Count,
    InputPath,
    Positive,
    SomeKeysOf,
    with_keys_of,
)
from slurm_jobs.formats.configs.training_parts import (
    BatchingConfig,
    OptimizerConfig,
    ProfileConfig,
    ScheduleConfig,
)

if TYPE_CHECKING:
    from slurm_jobs.formats.configs.train import TrainConfig


Part: TypeAlias = Literal["vision", "projector", "language", "heads", "adapters"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a model; each parameter belongs to one of them."""
ALL = "all"
"""Name of all parts except the adapters."""
SINGLE_WORD = re.compile(r"[A-Za-z0-9_-]+")
"""Pattern of a single word: names of parameters have a dot, and patterns of them `*`, `?` or `[`.
"""


SMALL_VLM_PARTS = ("vision", "projector", "language", "heads")
"""Prefixes of the names of all parameters of a `small_vlm`."""
MEANT_PARTS = {
    "vis": "vision",
    "proj": "projector",
    "connector": "projector",
    "merger": "projector",
}
"""Part that is meant by a family's names with these letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelConfig(CheckedConfig):
    """Level of a chain: one of the assistant's turns."""

    name: str
    """Name of the level, in results."""
    head: Literal["text", "classes"] = "text"
    """`text`: the answer is learned token by token. `classes`: a linear layer on the hidden state
    before the answer predicts which of `classes` it is; later levels read the answer's text."""
    classes: tuple[str, ...] = ()
    """All possible answers of a level with `head: classes`, as in the manifest."""
    weight: Positive = 1.0
    """Weight of this level's mean loss in the sum over all levels."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.head == "text" and self.classes:
            yield f"level {self.name}: classes are given and head is text: set `head: classes`"
        if self.head == "classes" and len(set(self.classes)) < max(2, len(self.classes)):
            yield f"level {self.name}: give two classes or more, each once"
        for name in self.classes:
            if name != name.strip():
                yield (
                    f"level {self.name}: the class {name!r} has white space around it, without "
                    f"which answers are read and compared; write {name.strip()!r}"
                )


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
class PhaseConfig(CheckedConfig):
    """Phase of a training; missing keys are the training's, also within mappings."""

    name: str
    """Name of the phase, in results and folders: small letters, digits, `-` and `_`."""
    learn: tuple[str, ...] | None = None
    """Parts that learn in the phase, with values as in the training's `learn`. Null: `adapters` if
    there are some, else `all`."""
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

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
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
