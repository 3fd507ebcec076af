"""The phases of a training: trainings that follow each other in folders of their own.

Each begins with the weights that the one before ended with, and has an optimizer, data and a
schedule of its own. A checkpoint of a phase holds all that has learned so far, so that one is
enough to go on from. A training without phases is one phase, in the stage's own folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.common.stage_config.phases import as_training
from slurm_jobs.common.stage_config.train import TrainConfig

PHASES_DIR = "phases"


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One phase."""

    number: int
    """From 0."""
    name: str
    """Empty where there is one, which has none."""
    config: TrainConfig
    """As if there were no other; without adapters, and quantize, where adapters do not learn."""

    def key(self, name: str) -> str:
        """Of a value of the phase in the stage's config, for messages."""
        return f"phases.{self.number}.{name}" if self.name else name

    def folder(self, output_dir: Path) -> Path:
        """Where it keeps its checkpoints and choices."""
        if not self.name:
            return output_dir
        return output_dir / PHASES_DIR / f"{self.number}-{self.name}"


def phases_of(config: TrainConfig) -> tuple[Phase, ...]:
    """In their order; one without a name where the config has none."""
    if not config.phases:
        return (Phase(number=0, name="", config=config),)
    return tuple(
        Phase(number=number, name=phase.name, config=as_training(config, number))
        for number, phase in enumerate(config.phases)
    )
