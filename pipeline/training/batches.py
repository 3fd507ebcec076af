"""How the loader's batches are counted and moved to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pipeline.data.batch import Batch
from pipeline.models import normalise_pixels
from pipeline.timing import StepCounts
from pipeline.training.device import Workplace
from pipeline.training.facts import DataFacts


def count_batches(batches: Sequence[Batch]) -> StepCounts:
    """What the microbatches of one step hold together."""
    return StepCounts(
        epoch=batches[0].epoch,
        num_microbatches=len(batches),
        num_samples=sum(b.num_samples for b in batches),
        num_tokens=sum(b.num_tokens for b in batches),
        num_padding_tokens=sum(b.num_padding_tokens for b in batches),
        num_supervised_tokens=sum(b.num_supervised_tokens for b in batches),
        num_images=sum(b.num_images for b in batches),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """A microbatch on the device."""

    input_ids: torch.Tensor
    """int64 [num_rows, length]."""
    labels: torch.Tensor
    """int64 [num_rows, length]."""
    images: torch.Tensor
    """Normalised float [num_images, 3, height, width]."""
    position_ids: torch.Tensor | None
    """int64 [num_rows, length] where rows hold several samples, else None."""


def to_device(batch: Batch, workplace: Workplace, facts: DataFacts) -> ModelInputs:
    """What the model takes, on the device."""

    # No SYNC: the reader pins memory for a GPU, which then copies while the host goes on.
    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(workplace.device, non_blocking=True)

    return ModelInputs(
        input_ids=move(batch.input_ids),
        labels=move(batch.labels),
        images=normalise_pixels(
            move(batch.images),
            mean=facts.image_mean,
            std=facts.image_std,
            dtype=workplace.dtype,
        ),
        position_ids=move(batch.position_ids) if batch.is_packed else None,
    )
