"""Five synthetic distributions of sample lengths.

Texts are log-normal in tokens, like chats and web texts. Values outside the given range are drawn
again, so that none pile up at a limit. An image has 256 tokens (SigLIP at 448 pixels with patches
of 14, merged 2 x 2, as in InternVL and PaliGemma).

    captions        one image, 12 tokens of template, a text of median 40 (4 to 500)
    chats           nine of ten with one image; 24 tokens of template, a text of median 350
                    (8 to 3,700)
    long documents  no image, a text of median 1,800 (64 to 4,096): a third is longer than
                    half a pack
    mixed           half without image, a text of median 250 (8 to 4,000); half with 1 to 4
                    images and a text of median 150 (8 to 3,000)
    tiled images    1 to 12 tiles of 256 tokens and, from two tiles on, a thumbnail; a text of
                    median 80 (8 to 700). Each tile counts as an image. Half is longer than
                    half a pack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data.packing.budget import PackBudget

IMAGE_TOKENS = 256
MAX_TOKENS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLengths:
    """Sample lengths of one data set."""

    num_tokens: np.ndarray
    """int32 [num_samples], image tokens included."""
    num_images: np.ndarray
    """int32 [num_samples]."""
    budget: PackBudget


def distributions(num_samples: int, seed: int = 0) -> dict[str, SampleLengths]:
    """Return the five distributions by name."""
    generator = np.random.Generator(np.random.PCG64(seed))

    def text(median: float, sigma: float, least: int, most: int) -> np.ndarray:
        kept = np.zeros(0)
        while len(kept) < num_samples:
            drawn = np.rint(np.exp(generator.normal(np.log(median), sigma, num_samples)))
            kept = np.append(kept, drawn[(drawn >= least) & (drawn <= most)])
        return kept[:num_samples].astype(np.int32)

    def lengths(
        texts: np.ndarray, num_images: np.ndarray, max_images: int | None = 16
    ) -> SampleLengths:
        return SampleLengths(
            num_tokens=(texts + IMAGE_TOKENS * num_images).astype(np.int32),
            num_images=num_images.astype(np.int32),
            budget=PackBudget(max_tokens=MAX_TOKENS, max_images=max_images),
        )

    with_image = generator.random(num_samples) < 0.9
    several = np.where(
        generator.random(num_samples) < 0.5, 0, generator.integers(1, 5, num_samples)
    )
    tiles = generator.integers(1, 13, num_samples)
    return {
        "captions": lengths(12 + text(40, 0.6, 4, 500), np.ones(num_samples, np.int32)),
        "chats": lengths(24 + text(350, 0.8, 8, 3700), with_image),
        "long documents": lengths(
            text(1800, 0.7, 64, MAX_TOKENS), np.zeros(num_samples, np.int32), None
        ),
        "mixed": lengths(
            np.where(several == 0, text(250, 1.0, 8, 4000), text(150, 0.8, 8, 3000)), several
        ),
        "tiled images": lengths(text(80, 0.8, 8, 700), tiles + (tiles > 1)),
    }
