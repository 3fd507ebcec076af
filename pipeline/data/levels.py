"""Levels of samples with chained targets: the level of each learned token.

A sample with three levels is a conversation with three assistant turns in one sequence of
tokens. With causal attention level 2 reads level 1 and level 3 reads both, and they read the
text of the manifest: all levels of all samples are learned in one forward pass. So a level is
the number of a run of learned tokens in its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from slurm_jobs.common.errors import StageConfigError, StageError

ClassReader = Callable[[tuple[int, ...]], int]
"""Maps the learned tokens of an answer to its class.

Raises:
    ValueError: it is none of the classes.
"""


class UnfitSampleError(ValueError):
    """Sample that does not fit the levels; a retry would read the same sample."""


def refuse_batch(where: str, error: ValueError) -> NoReturn:
    """Raise the error of a batch that cannot be assembled; `where` names its samples.

    Raises:
        StageConfigError: a sample does not fit the levels.
        StageError: for any other reason.
    """
    if isinstance(error, StageConfigError):
        raise error
    if isinstance(error, UnfitSampleError):
        message = f"{where}: {error}; run `preprocess` again after fixing the manifest"
        raise StageConfigError(message) from None
    message = f"{where}: {error}"
    raise StageError(message) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelRules:
    """Requirements for every sample."""

    names: tuple[str, ...]
    readers: Mapping[int, ClassReader]
    """Class readers by number of level, for levels that a head classifies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassTargets:
    """Targets of a classifier head; both arrays have one entry per sample."""

    places: np.ndarray
    """int64: positions, in the concatenated rows, of the tokens before the answers."""
    classes: np.ndarray
    """int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelTargets:
    """Targets of a batch by level."""

    is_text: np.ndarray
    """bool [num_learned]: learned as text, not by a classifier head."""
    levels: np.ndarray
    """int64 [num_learned]."""
    classes: Mapping[int, ClassTargets]
    """By number of the level."""
    num_levels: int


def find_levels(
    learned: np.ndarray,
    tokens: np.ndarray,
    bounds: np.ndarray,
    keys: Sequence[str],
    rules: LevelRules,
) -> LevelTargets:
    """Find the levels of the learned tokens of a batch.

    Args:
        learned: int64 [num_learned]: positions of the learned tokens, ascending.
        tokens: int64 [num_learned]: the tokens at these positions.
        bounds: int32 [num_segments + 1]: bounds of samples and padding.
        keys: Keys of the samples, in their order.
        rules: Requirements for samples.

    Raises:
        UnfitSampleError: a sample has more or fewer levels, or an answer is not one of its
            classes.
    """
    segments = np.searchsorted(bounds, learned, side="right")
    begins = np.ones(len(learned), dtype=bool)
    begins[1:] = (np.diff(learned) != 1) | (np.diff(segments) != 0)
    starts = np.flatnonzero(begins)
    _check_counts(segments[starts], bounds, keys, rules)
    num_levels = len(rules.names)
    levels = (np.cumsum(begins) - 1) % num_levels  # every sample has one run per level
    answers = np.split(tokens, starts[1:])
    classes = {
        level: ClassTargets(
            places=learned[starts[level::num_levels]] - 1,
            classes=_read_all(read, answers[level::num_levels], keys, (level, rules.names[level])),
        )
        for level, read in rules.readers.items()
    }
    return LevelTargets(
        is_text=~np.isin(levels, list(rules.readers)),
        levels=levels,
        classes=classes,
        num_levels=num_levels,
    )


def _check_counts(
    segments: np.ndarray, bounds: np.ndarray, keys: Sequence[str], rules: LevelRules
) -> None:
    """Compare the number of runs of each sample with the number of levels."""
    counts = np.bincount(segments, minlength=len(bounds))
    found = counts[counts > 0]
    if len(found) == len(keys) and (found == len(rules.names)).all():
        return
    # Padding has no runs and is between samples; a sample without runs looks the same.
    wrong = np.flatnonzero(found != len(rules.names))
    which = f"sample {keys[wrong[0]]}" if len(found) == len(keys) else f"a sample of {keys}"
    number = found[wrong[0]] if len(wrong) else 0
    message = (
        f"{which} has {number} learned answers, but there are {len(rules.names)} levels "
        f"({', '.join(rules.names)}); every sample needs one complete assistant turn per level: "
        "preprocess with `too_long: drop`"
    )
    raise UnfitSampleError(message)


def _read_all(
    read: ClassReader, answers: Sequence[np.ndarray], keys: Sequence[str], level: tuple[int, str]
) -> np.ndarray:
    """Return the classes of the answers of one level (number and name): int64 [num_samples]."""
    number, name = level
    found = []
    for answer, key in zip(answers, keys, strict=True):
        try:
            found.append(read(tuple(answer.tolist())))
        except ValueError as error:
            message = (
                f"sample {key}, level {name}: {error}; add it to `levels.{number}.classes`, or "
                "fix that row of the manifest"
            )
            raise UnfitSampleError(message) from None
    return np.array(found, dtype=np.int64)
