"""What trainings of tiny models of transformers have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
