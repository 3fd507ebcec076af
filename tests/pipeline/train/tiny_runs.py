"""What trainings of tiny models of transformers have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SAVED: dict[str, Any] = {
    "num_steps": 4,
    "checkpoint": {"every_steps": 2, "every_min": None, "keep_last": 4},
}
"""A checkpoint in the middle, for what goes on from it."""
DECAYING = {"learning_rate": 1e-2, "weight_decay": 0.1}
LORA = {"rank": 4, "alpha": 8.0}


def rows_of(made: tuple[Path, Path]) -> str:
    """Manifest of what the data set was made of."""
    return str(made[0].parents[1] / "source" / "rows.jsonl")


def tiny_config(made: tuple[Path, Path], **changes: Any) -> dict[str, Any]:
    """`made` are the data set's folder and the model's; steps of four samples, a constant rate."""
    dataset_dir, model_dir = made
    return {
        "dataset": str(dataset_dir),
        "model": {"type": "hugging_face", "path": str(model_dir)},
        "global_batch_size": 4,
        "num_lanes": 2,
        "optimizer": {"learning_rate": 3e-3},
        "schedule": {"kind": "constant"},
        "checkpoint": {"every_min": None},
        **changes,
    }
