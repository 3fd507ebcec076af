"""Work of a pack, in tokens of the language model's layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.budget import Packs
from pipeline.data.packing.pack_statistics import sums_of


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkModel:
    """Cost beyond the language model's layers, where each token costs one unit."""

    per_image: float
    """Token equivalents of one image in the vision tower."""
    per_square_token: float
    """Token equivalents of attention, per squared length of each sample."""


def work_model(
    *,
    hidden_size: int,
    num_patches: int = 0,
    vision_parameters: float = 0,
    language_parameters: float = 1,
) -> WorkModel:
    """Return the work of a model from its sizes.

    Linear layers take 2 floating-point operations per parameter and token (Kaplan et al. 2020,
    arXiv:2001.08361, section 2.1). So an image costs `num_patches * vision_parameters /
    language_parameters` tokens, without attention among its patches. A layer has about 12 *
    hidden_size**2 parameters, so 24 * hidden_size**2 operations per token; attending to T
    tokens takes 4 * T * hidden_size, which is T / (6 * hidden_size) of that. With causal
    attention a token of a sample of L tokens sees L / 2 on average: the sample's attention
    costs L**2 / (12 * hidden_size) tokens. Forward and backward have the same ratio.

    Args:
        hidden_size: Of the language model; if its layers do not have about 12 *
            hidden_size**2 parameters, create `WorkModel` with another coefficient.
        num_patches: Patches that the vision tower computes for an image, not the tokens that
            remain.
        vision_parameters: Of the vision tower.
        language_parameters: Of the language model's layers.
    """
    return WorkModel(
        per_image=num_patches * vision_parameters / language_parameters,
        per_square_token=1 / (12 * hidden_size),
    )


def pack_work(
    packs: Packs, num_tokens: np.ndarray, num_images: np.ndarray, model: WorkModel
) -> np.ndarray:
    """Return the work of each pack in token equivalents, float64 [num_packs].

    Samples of a pack do not see each other: attention costs the sum of their squares. Sums are
    of integers, so the result is the same on every platform.

    Args:
        packs: One or more.
        num_tokens: Integers [num_samples] of the index.
        num_images: Integers [num_samples].
        model: Costs of images and attention.
    """
    tokens = sums_of(packs, num_tokens)
    images = sums_of(packs, num_images)
    squares = np.add.reduceat(np.square(num_tokens[packs.items], dtype=np.int64), packs.bounds[:-1])
    return tokens + model.per_image * images + model.per_square_token * squares
