"""Common parts of greedy generation in batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipeline.models.interface import Prompt
from pipeline.models.layouts import ImageLayout, StoredImages
from pipeline.models.layouts.model import VisionInputs


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
    originals = [found.original_sizes for found in images if found.original_sizes is not None]
    joined = StoredImages(
        pixels=torch.cat([found.pixels for found in images]).to(device),
        sizes=torch.cat([found.sizes for found in images]),
        original_sizes=torch.cat(originals) if originals else None,
    )
    return layout.arrange(joined, dtype)
