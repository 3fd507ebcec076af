"""How much work a pack is: tokens, images and attention, in tokens' worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.budget import Packs
from pipeline.data.packing.statistics import sums_of


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkModel:
    """What is added to the one unit that each token costs in the language model's layers."""

    per_image: float
    """Token equivalents of one image in the vision tower."""
    per_square_token: float
    """Token equivalents of attention, for each token of each sample squared."""


def work_model(
    *,
    hidden_size: int,
    num_patches: int = 0,
    vision_parameters: float = 0,
    language_parameters: float = 1,
) -> WorkModel:
    """The work of a model from its sizes.

    Linear layers take 2 floating-point operations a parameter and token
    (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). An image is therefore
    worth `num_patches * vision_parameters / language_parameters` tokens,
    attention among its patches left out. A layer has about 12 * hidden_size**2
    parameters, so 24 * hidden_size**2 operations a token; attending to T tokens
    takes 4 * T * hidden_size, which is T / (6 * hidden_size) of that. With
    causal attention a token of a sample of L tokens sees L / 2 on average: the
    sample's attention is worth L**2 / (12 * hidden_size) tokens. Forward and
    backward have the same ratio.

    Args:
        hidden_size: Of the language model; with wider or narrower layers than 12 * hidden_size**2
            parameters give `WorkModel` its own coefficient.
        num_patches: That the vision tower computes for an image, not the tokens that remain.
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
    """The work of each pack in token equivalents, float64 [num_packs].

    Samples of a pack do not see each other: attention costs the sum of their
    squares. Sums are of integers, so the result is the same on every platform.

    Args:
        packs: One or more.
        num_tokens: Integers [num_samples], the index's.
        num_images: Integers [num_samples].
        model: What images and attention cost.
    """
    tokens = sums_of(packs, num_tokens)
    images = sums_of(packs, num_images)
    squares = np.add.reduceat(np.square(num_tokens[packs.items], dtype=np.int64), packs.bounds[:-1])
    return tokens + model.per_image * images + model.per_square_token * squares
