"""The levels of samples with chained targets: which learned token is whose.

A sample with three levels is a conversation in which the assistant speaks three times, one
sequence of tokens. With causal attention level 2 reads level 1 and level 3 reads both, and what
they read is what the manifest says: all levels of all samples are learned in one forward pass. So
a level is nothing but the number of a run of learned tokens in its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from slurm_jobs.common.errors import StageConfigError, StageError

ClassReader = Callable[[tuple[int, ...]], int]
"""From the learned tokens of an answer to its class.

Raises:
    ValueError: it is none of the classes.
"""


class UnfitSampleError(ValueError):
    """A sample is not as the levels say; no other attempt reads another one."""


def refuse_batch(where: str, error: ValueError) -> NoReturn:
    """End a training whose batch cannot be put together; `where` its samples lie.

    Raises:
        StageConfigError: a sample does not fit the levels.
        StageError: for any other reason.
    """
    if isinstance(error, StageConfigError):
        raise error
    if isinstance(error, UnfitSampleError):
        message = f"{where}: {error}; run `preprocess` again where the manifest was mended"
        raise StageConfigError(message) from None
    message = f"{where}: {error}"
    raise StageError(message) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelRules:
    """What every sample must have."""

    names: tuple[str, ...]
    readers: Mapping[int, ClassReader]
    """By number of the level, of those that are told by class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassTargets:
    """What a head that tells classes is to say; both arrays have one entry a sample."""

    places: np.ndarray
    """int64: places in the rows, one after the other, of the tokens before the answers."""
    classes: np.ndarray
    """int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelTargets:
    """The targets of a batch by level."""

    is_text: np.ndarray
    """bool [num_learned]: learned as text, not told by class."""
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
    """Tell the levels of the learned tokens of a batch.

    Args:
        learned: int64 [num_learned]: places of the learned tokens, rising.
        tokens: int64 [num_learned]: the tokens there.
        bounds: int32 [num_segments + 1]: where samples, and padding, begin and end.
        keys: Of the samples, in their order.
        rules: What samples must have.

    Raises:
        UnfitSampleError: a sample has more or fewer levels, or an answer is none of its classes.
    """
    segments = np.searchsorted(bounds, learned, side="right")
    begins = np.ones(len(learned), dtype=bool)
    begins[1:] = (np.diff(learned) != 1) | (np.diff(segments) != 0)
    starts = np.flatnonzero(begins)
    _check_counts(segments[starts], bounds, keys, rules)
    num_levels = len(rules.names)
    levels = (np.cumsum(begins) - 1) % num_levels  # every sample has one run a level
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
    """Compare how many runs each sample has with the number of levels."""
    counts = np.bincount(segments, minlength=len(bounds))
    found = counts[counts > 0]
    if len(found) == len(keys) and (found == len(rules.names)).all():
        return
    # Padding has no runs, and stands between samples: without runs a sample looks like it.
    wrong = np.flatnonzero(found != len(rules.names))
    which = f"sample {keys[wrong[0]]}" if len(found) == len(keys) else f"a sample of {keys}"
    number = found[wrong[0]] if len(wrong) else 0
    message = (
        f"{which} has {number} answers that are learned, and there are {len(rules.names)} levels "
        f"({', '.join(rules.names)}); every sample needs one assistant turn a level, whole: "
        f"preprocess with `too_long: drop`"
    )
    raise UnfitSampleError(message)


def _read_all(
    read: ClassReader, answers: Sequence[np.ndarray], keys: Sequence[str], level: tuple[int, str]
) -> np.ndarray:
    """The classes of the answers of one level, of number and name: int64 [num_samples]."""
    number, name = level
    found = []
    for answer, key in zip(answers, keys, strict=True):
        try:
            found.append(read(tuple(answer.tolist())))
        except ValueError as error:
            message = (
                f"sample {key}, level {name}: {error}; add it to `levels.{number}.classes`, or "
                "mend that row of the manifest"
            )
            raise UnfitSampleError(message) from None
    return np.array(found, dtype=np.int64)
