"""What a way of training is asked for, and what it tells of each step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
EPSILON = 1e-8
"""PyTorch's, which our stage has no field for."""
MAX_NORM = 1.0
"""AdamW without weight decay at a constant rate, for all ways alike."""
NUM_WARM = 2
"""Steps that are not timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """What is trained."""

    folder: Path
    """With `model/`, `processor/`, `source/rows.jsonl` and what `consolidate` made of these."""
    num_steps: int
    batch_size: int
    """Samples of a step."""
    at_once: int
    """Samples of a microbatch; a way that packs does not look at it."""
    row_tokens: int
    """Tokens of a packed row."""
    device: str
    precision: str
    deterministic: bool = False
    """Of ours alone, on a GPU; on a CPU it always is."""
    logs_steps: bool = False
    """Whether peers tell loss and norm of each step, for which they wait; ours always does."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of the manifest."""
        lines = (self.folder / "source/rows.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnd:
    """When a step ended, and what was in it."""

    unix_s: float
    num_tokens: int
    """Real ones."""
    model_flops: float
    """By the formula of `pipeline.timing.flops`."""
    loss: float | None
    """Before its update; None where nobody told."""
    grad_norm: float | None
    """Before it was clipped; None where nobody told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What came of a job."""

    steps: tuple[StepEnd, ...]
    memory_peak_bytes: int | None
    """Of the GPU; None without one."""
