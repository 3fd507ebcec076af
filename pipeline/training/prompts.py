"""Encoded rows as a model's prompts."""

from __future__ import annotations

import numpy as np
import torch

from pipeline.models import Prompt, StoredImages
from pipeline.preprocess.encode import EncodedPrompt


def to_prompt(encoded: EncodedPrompt) -> Prompt:
    """Return the model's form of an encoded prompt."""
    flat = [image.reshape(-1, 3) for image in encoded.images]
    sizes = [image.shape[:2] for image in encoded.images]
    originals = [(height, width) for width, height in encoded.original_sizes]
    pixels = np.concatenate(flat) if flat else np.empty((0, 3), dtype=np.uint8)
    return Prompt(
        input_ids=encoded.input_ids.tolist(),
        images=StoredImages(
            pixels=torch.from_numpy(pixels),
            sizes=torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2),
            original_sizes=torch.tensor(originals, dtype=torch.int64).reshape(-1, 2),
        ),
    )
