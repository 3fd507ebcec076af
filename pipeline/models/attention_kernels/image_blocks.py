"""Images whose tokens all see each other, also later ones: Gemma's language models.

Text sees only what is before it. The tokens of an image are next to each other, and marks stand
between two images. Bounds of samples cannot describe this, so rows with images need a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBlocks:
    """Images in the rows of a batch, and the layers in which their tokens see later ones."""

    numbers: torch.Tensor
    """int64 [num_rows, length]: number of the image of each token in its row, -1 for text."""
    layers: frozenset[str]
    """Kinds of layers, by their names in `layer_types` of transformers."""


def number_images(places: torch.Tensor, num_rows: int, length: int) -> torch.Tensor:
    """Return `ImageBlocks.numbers`; no SYNC.

    Args:
        places: int64 [num_image_tokens]: positions of image tokens in the concatenated rows.
        num_rows: Rows of the batch.
        length: Tokens of each row.
    """
    flat = torch.zeros(num_rows * length, dtype=torch.bool, device=places.device)
    is_image = flat.index_fill_(0, places, True).view(num_rows, length)
    follows_image = functional.pad(is_image, (1, 0))[:, :-1]
    numbers = (is_image & ~follows_image).cumsum(dim=1) - 1
    return numbers.masked_fill(~is_image, -1)
