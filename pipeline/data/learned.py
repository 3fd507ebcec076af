"""Targets of a batch: positions, tokens, and their levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from pipeline.data.levels import LevelRules, LevelTargets, find_levels
from pipeline.data.sample_format import IGNORED_LABEL

ClassPlaces: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""int64 [num_samples] both: positions in the rows before the answers, and the answers' classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """Targets of a microbatch; positions count through its concatenated rows."""

    places: torch.Tensor
    """int64 [num_learned]: positions whose next token is a target."""
    targets: torch.Tensor
    """int64 [num_learned]: those next tokens."""
    levels: torch.Tensor | None
    """int64 [num_learned]: the level of each; None without levels."""
    classes: Mapping[int, ClassPlaces]
    """Targets by level that a classifier head predicts; the three fields above do not contain them.
    """
    num_by_level: tuple[int, ...]
    """Learned tokens, or classified answers, of each level; one number without levels."""
    num_tokens: int
    """Learned tokens, including those of classified answers."""


def find_learned(
    labels: np.ndarray,
    bounds: np.ndarray,
    keys: Sequence[str],
    rules: LevelRules | None,
    tensor: Callable[[np.ndarray], torch.Tensor],
) -> Learned:
    """Return the targets of rows whose first tokens are never learned.

    Args:
        labels: int64 [num_rows, length], -100 where nothing is learned.
        bounds: int32 [num_segments + 1] of samples and padding.
        keys: Keys of the samples.
        rules: Rules of levels, if any.
        tensor: Converts an array to a tensor.

    Raises:
        ValueError: a sample does not follow the rules.
    """
    flat = labels.reshape(-1)
    learned = np.flatnonzero(flat != IGNORED_LABEL)
    targets = flat[learned]
    if rules is not None:
        return _by_level(
            find_levels(learned, targets, bounds, keys, rules), learned, targets, tensor
        )
    return Learned(
        places=tensor(learned - 1),
        targets=tensor(targets),
        levels=None,
        classes={},
        num_by_level=(len(learned),),
        num_tokens=len(learned),
    )


def _by_level(
    found: LevelTargets,
    learned: np.ndarray,
    targets: np.ndarray,
    tensor: Callable[[np.ndarray], torch.Tensor],
) -> Learned:
    levels = found.levels[found.is_text]
    counts = np.bincount(levels, minlength=found.num_levels)
    for level, told in found.classes.items():
        counts[level] = len(told.classes)
    return Learned(
        places=tensor(learned[found.is_text] - 1),
        targets=tensor(targets[found.is_text]),
        levels=tensor(levels),
        classes={
            level: (tensor(told.places), tensor(told.classes))
            for level, told in found.classes.items()
        },
        num_by_level=tuple(counts.tolist()),
        num_tokens=len(learned),
    )
