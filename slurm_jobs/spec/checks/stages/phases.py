"""A training as each of its phases sees it. PURE."""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.configs.training_phases import as_training


def parts_of(config: Any) -> list[Any]:
    """Return the training as each of its phases sees it; the training itself without phases."""
    return [as_training(config, number) for number in range(len(config.phases))] or [config]


def packs_rows(config: Any) -> bool:
    """Check whether the batches of a training, or of a phase, are packed rows, or may be."""
    return config.batching.kind in {"packed", "auto"}
