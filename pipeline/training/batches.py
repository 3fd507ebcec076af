"""How the loader's batches are counted and moved to the device."""

from __future__ import annotations

from collections.abc import Sequence

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


def to_device(
    batch: Batch, workplace: Workplace, facts: DataFacts
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, labels and normalised images on the device."""
    # No SYNC: the reader pins memory for a GPU, which then copies while the host goes on.
    input_ids = batch.input_ids.to(workplace.device, non_blocking=True)
    labels = batch.labels.to(workplace.device, non_blocking=True)
    pixels = batch.images.to(workplace.device, non_blocking=True)
    images = normalise_pixels(
        pixels, mean=facts.image_mean, std=facts.image_std, dtype=workplace.dtype
    )
    return input_ids, labels, images
