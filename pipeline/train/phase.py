"""Phases of a training: consecutive trainings in separate folders.

Each starts with the final weights of the one before, and has its own optimizer, data and
schedule. A checkpoint of a phase has all that was trained so far, so one is enough to continue
from. A training without phases is one phase, in the stage's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_phases import as_training

PHASES_DIR = "phases"


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One phase."""

    number: int
    """From 0."""
    name: str
    """Empty for the only phase, which has no name."""
    config: TrainConfig
    """Config of a single training; without adapters, and quantize, if adapters are not trained."""

    def key(self, name: str) -> str:
        """Return the key of one of the phase's values in the stage's config, for messages."""
        return f"phases.{self.number}.{name}" if self.name else name

    def folder(self, output_dir: Path) -> Path:
        """Return the folder of its checkpoints and choices."""
        if not self.name:
            return output_dir
        return output_dir / PHASES_DIR / f"{self.number}-{self.name}"


def phases_of(config: TrainConfig) -> tuple[Phase, ...]:
    """Return the phases in order; one without a name if the config has none."""
    if not config.phases:
        return (Phase(number=0, name="", config=config),)
    return tuple(
        Phase(number=number, name=phase.name, config=as_training(config, number))
        for number, phase in enumerate(config.phases)
    )
