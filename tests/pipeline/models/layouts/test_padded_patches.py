"""Padded patches of images against those of transformers' processor."""

from __future__ import annotations

import numpy as np
import torch
from transformers import Gemma4ImageProcessorPil

from pipeline.models.layouts.image_layout import StoredImages
from pipeline.models.layouts.padded_patches import PADDING, PaddedPatches
from pipeline.models.layouts.pixel_scale import PixelScale

LAYOUT = PaddedPatches(
    scale=PixelScale(mean=(0.0,) * 3, std=(1.0,) * 3), patch_size=4, merge_size=3
)
SIZES = ((120, 84), (60, 168), (84, 120))
"""Heights and widths that the processor leaves as they are: 70 tokens each."""


def test_patches_and_their_places_are_those_of_the_processor():
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
    flat = np.concatenate([image.reshape(-1, 3) for image in images])
    stored = StoredImages(pixels=torch.from_numpy(flat), sizes=torch.tensor(SIZES), pictures=None)
    found = LAYOUT.arrange(stored, torch.float32)
    processor = Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)
    theirs = processor(images, return_tensors="pt")
    torch.testing.assert_close(found["pixel_values"], theirs["pixel_values"])
    assert torch.equal(found["image_position_ids"], theirs["image_position_ids"])
    assert found["image_grids"] == ((30, 21), (15, 42), (21, 30))


def test_shorter_images_are_padded_to_the_longest_of_the_batch():
    stored = StoredImages(
        pixels=torch.full((12 * 24 + 12 * 12, 3), 255, dtype=torch.uint8),
        sizes=torch.tensor([[12, 24], [12, 12]]),
        pictures=None,
    )
    found = LAYOUT.arrange(stored, torch.float32)
    values, places = found["pixel_values"], found["image_position_ids"]
    assert values.shape == (2, 18, 48)
    assert values[1, :9].eq(1).all()
    assert values[1, 9:].eq(0).all()
    assert places[1, 9:].eq(PADDING).all()
    assert places[0, :7].tolist() == [[0, 0], [1, 0], [2, 0], [3, 0], [4, 0], [5, 0], [0, 1]]
