"""What a pack costs."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.packing.budget import Packs
from pipeline.data.packing.work_model import WorkModel, pack_work, work_model

PACKS = Packs(bounds=np.array([0, 2, 3]), items=np.array([2, 0, 1], dtype=np.int32))
TOKENS = np.array([10, 20, 30], dtype=np.int32)
IMAGES = np.array([1, 0, 2], dtype=np.int32)


def test_work_is_tokens_and_images_and_the_squares_of_samples() -> None:
    found = pack_work(PACKS, TOKENS, IMAGES, WorkModel(per_image=100, per_square_token=0.5))
    assert found.tolist() == [40 + 300 + 0.5 * (900 + 100), 20 + 0.5 * 400]
    assert found.dtype == np.float64


def test_squares_of_long_samples_do_not_wrap_around() -> None:
    long = np.array([1, 1, 100_000], dtype=np.int32)
    found = pack_work(PACKS, long, IMAGES * 0, WorkModel(per_image=0, per_square_token=1))
    assert found[0] == 100_001 + 10_000_000_001


def test_the_model_counts_operations_as_the_layers_have_them() -> None:
    hidden, length = 64, 1000
    model = work_model(
        hidden_size=hidden, num_patches=729, vision_parameters=4e8, language_parameters=16e8
    )
    linear = 2 * 12 * hidden**2
    # Scores and their use: 2 operations a channel and pair each, over the tokens before and itself.
    causal = sum(4 * hidden * context for context in range(1, length + 1))
    assert model.per_square_token * length**2 == pytest.approx(causal / linear, rel=1e-3)
    assert model.per_image == 729 / 4
    assert work_model(hidden_size=hidden).per_image == 0
