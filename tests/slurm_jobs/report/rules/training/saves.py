"""A training that saves checkpoints in a given share of its time."""

from __future__ import annotations

from dataclasses import replace


def saving(training, share, **changes):
    """The training with such a share of its steps in checkpoints."""
    phases = tuple(
        replace(p, share=share) if p.kind == "checkpoint" else p for p in training.phases
    )
    return replace(training, phases=phases, **changes)
