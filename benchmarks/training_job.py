"""Input of a training method, and the record of each of its steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
EPSILON = 1e-8
"""PyTorch's default; our stage has no field for it."""
MAX_NORM = 1.0
"""All methods use AdamW without weight decay at a constant rate."""
NUM_WARM = 2
"""Steps that are not timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """A training to run."""

    folder: Path
    """Has `model/`, `processor/`, `source/rows.jsonl` and the output of `consolidate`."""
    num_steps: int
    batch_size: int
    """Samples per step."""
    at_once: int
    """Samples per microbatch; packed training ignores it."""
    row_tokens: int
    """Tokens of a packed row."""
    device: str
    precision: str
    deterministic: bool = False
    """Only for ours on a GPU; on a CPU it always is."""
    logs_steps: bool = False
    """Whether peers log loss and norm of each step, which makes them wait; ours always does."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the manifest."""
        lines = (self.folder / "source/rows.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnd:
    """End time and contents of a step."""

    unix_s: float
    num_tokens: int
    """Tokens without padding."""
    model_flops: float
    """By the formula of `pipeline.timing.flops`."""
    loss: float | None
    """Before the update; None if not logged."""
    grad_norm: float | None
    """Before clipping; None if not logged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """Result of a job."""

    steps: tuple[StepEnd, ...]
    memory_peak_bytes: int | None
    """Peak GPU memory; None without a GPU."""
