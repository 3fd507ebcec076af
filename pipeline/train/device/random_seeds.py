"""Seeds of a rank's random number generators."""

from __future__ import annotations

import random

import numpy as np
import torch

_GENERATORS_WORD = 4
"""Separates these seeds from those of the order, of augmentation and of streams."""


def seed_generators(seed: int, rank: int) -> None:
    """Seed this rank's random number generators, from which dropout draws.

    Without it each process would start from random seeds, and the same spec would give other
    weights each time. A checkpoint that is restored later has its own state.
    """
    words = np.random.SeedSequence([_GENERATORS_WORD, seed, rank]).generate_state(3)
    torch_seed, numpy_seed, python_seed = (int(word) for word in words)
    torch.manual_seed(torch_seed)  # of all devices
    np.random.seed(numpy_seed)  # noqa: NPY002 - what libraries draw from without asking
    random.seed(python_seed)
