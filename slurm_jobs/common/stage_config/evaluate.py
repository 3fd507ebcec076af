"""What is asked of a trained model."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import (
    Count,
    InputPath,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Greedy generation on a held-out manifest after the last step."""

    manifest: InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`; null leaves evaluation out. Prompts
    and limits are those that the data set was preprocessed with."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; the manifest's own folder if not given."""
    num_samples: Count | None = None
    """Only the first so many rows; null takes all."""
    max_new_tokens: Count = 64
    """Longest answer in tokens."""
    batch_size: Count = 32
    """Samples that one rank generates at a time."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds."""
        check_bounds(self)
