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


def pad_left(
    prompts: Sequence[Prompt], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad token ids and attention mask, int64 [batch, tokens], so all prompts end in one column."""
    width = max(len(prompt.input_ids) for prompt in prompts)
    input_ids, mask = [], []
    for prompt in prompts:
        num_padding = width - len(prompt.input_ids)
        input_ids.append([pad_id] * num_padding + list(prompt.input_ids))
        mask.append([0] * num_padding + [1] * len(prompt.input_ids))
    return torch.tensor(input_ids, device=device), torch.tensor(mask, device=device)


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
    pictures = [image_set.pictures for image_set in images if image_set.pictures is not None]
    joined = StoredImages(
        pixels=torch.cat([image_set.pixels for image_set in images]).to(device),
        sizes=torch.cat([image_set.sizes for image_set in images]),
        pictures=torch.cat(pictures) if pictures else None,
    )
    return layout.arrange(joined, dtype)
