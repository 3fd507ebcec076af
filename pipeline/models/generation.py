"""Prompts, and the common parts of greedy generation in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pipeline.models.layouts.image_layout import ImageLayout, StoredImages, VisionInputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Conversation that the model is to continue."""

    input_ids: Sequence[int]
    """Image tokens expanded."""
    images: StoredImages
    """On the host."""


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad token ids and attention mask, int64 [batch, tokens], so all prompts end in one column."""
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)


def before(answer: list[int], end_id: int) -> list[int]:
    """Return the answer up to its first end token."""
    return answer[: answer.index(end_id)] if end_id in answer else answer


def arrange_prompts(
    prompts: Sequence[Prompt], layout: ImageLayout, device: torch.device, dtype: torch.dtype
) -> VisionInputs:
    """Return the input of the vision tower for the images of all prompts; empty without any."""
    images = [prompt.images for prompt in prompts if len(prompt.images.sizes)]
    if not images:
        return {}
    originals = [
        image_set.original_sizes for image_set in images if image_set.original_sizes is not None
    ]
    joined = StoredImages(
        pixels=torch.cat([image_set.pixels for image_set in images]).to(device),
        sizes=torch.cat([image_set.sizes for image_set in images]),
        original_sizes=torch.cat(originals) if originals else None,
    )
    return layout.arrange(joined, dtype)
