"""Lengths of samples for the tests of packing."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pipeline.data.packing.budget import PackBudget, Packs

Sized = tuple[np.ndarray, np.ndarray, PackBudget]


@st.composite
def sized_samples(draw: st.DrawFn, max_samples: int = 300) -> Sized:
    """Tokens and images of samples, and a budget that every one of them keeps."""
    max_tokens = draw(st.integers(1, 200))
    max_images = draw(st.none() | st.integers(1, 6))
    num_samples = draw(st.integers(1, max_samples))
    seed = draw(st.integers(0, 2**32 - 1))
    largest = draw(st.integers(1, max_tokens))
    generator = np.random.Generator(np.random.PCG64(seed))
    most_images = draw(st.integers(0, 6 if max_images is None else max_images))
    return (
        generator.integers(1, largest + 1, num_samples).astype(np.int32),
        generator.integers(0, most_images + 1, num_samples).astype(np.int32),
        PackBudget(max_tokens=max_tokens, max_images=max_images),
    )


def captions(num_samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One image of 256 tokens and a short text each."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return 256 + generator.integers(10, 120, num_samples), np.ones(num_samples, dtype=np.int64)


def documents(num_samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Texts of which a third is longer than half of 4,096 tokens."""
    generator = np.random.Generator(np.random.PCG64(seed))
    lengths = np.rint(np.exp(generator.normal(np.log(1800), 0.7, 2 * num_samples)))
    lengths = lengths[(lengths >= 64) & (lengths <= 4096)][:num_samples].astype(np.int64)
    return lengths, np.zeros(num_samples, dtype=np.int64)


def sums(packs: Packs, values: np.ndarray) -> list[int]:
    """Of each pack, one by one, as the arithmetic under test does not do it."""
    return [int(values[packs.pack(number)].sum()) for number in range(len(packs))]
