"""Levels of samples with chained targets: the level of each learned token.

A sample with three levels is a conversation with three assistant turns in one sequence of
tokens. With causal attention level 2 reads level 1 and level 3 reads both, and they read the
text of the manifest: all levels of all samples are learned in one forward pass. So a level is
the number of a run of learned tokens in its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np
import torch

from pipeline.data.disk_format.sample_members import IGNORED_LABEL
from slurm_jobs.base.errors import StageConfigError, StageDataError, StageError

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
        raise StageDataError(message) from None
    message = f"{where}: {error}"
    raise StageError(message) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelRules:
    """Requirements for every sample."""

    names: tuple[str, ...]
    readers: Mapping[int, ClassReader]
    """Class readers by number of level, for levels that a head classifies."""


ClassPlaces: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""int64 [num_samples] both: positions in the rows before the answers, and the answers' classes."""


class TargetGroups(NamedTuple):
    """Groups whose losses are summed apart: the levels of samples, or their manifests."""

    of_targets: torch.Tensor
    """int64 [num_learned]: the group of each target."""
    number: int
    """Number of groups; some may have no target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """Targets of a microbatch; positions count through its concatenated rows."""

    places: torch.Tensor
    """int64 [num_learned]: positions whose next token is a target."""
    targets: torch.Tensor
    """int64 [num_learned]: those next tokens."""
    groups: TargetGroups | None
    """None if all targets are summed."""
    classes: Mapping[int, ClassPlaces]
    """Targets by level that a classifier head predicts; the three fields above do not contain them.
    """
    num_by_group: tuple[int, ...]
    """Learned tokens, or classified answers, of each group; one number without groups."""
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
        keys: Keys of the samples, in their order.
        rules: Rules of levels, if any.
        tensor: Converts an array to a tensor.

    Raises:
        UnfitSampleError: a sample has more or fewer levels, or an answer is not one of its
            classes.
    """
    flat = labels.reshape(-1)
    learned = np.flatnonzero(flat != IGNORED_LABEL)
    targets = flat[learned]
    if rules is None:
        return Learned(
            places=tensor(learned - 1),
            targets=tensor(targets),
            groups=None,
            classes={},
            num_by_group=(len(learned),),
            num_tokens=len(learned),
        )
    segments = np.searchsorted(bounds, learned, side="right")
    begins = np.ones(len(learned), dtype=bool)
    begins[1:] = (np.diff(learned) != 1) | (np.diff(segments) != 0)
    starts = np.flatnonzero(begins)
    _check_num_levels(segments[starts], bounds, keys, rules)
    num_levels = len(rules.names)
    levels = (np.cumsum(begins) - 1) % num_levels  # every sample has one run per level
    is_text = ~np.isin(levels, list(rules.readers))
    counts = np.bincount(levels[is_text], minlength=num_levels)
    answers = np.split(targets, starts[1:])
    classes: dict[int, ClassPlaces] = {}
    for level, read in rules.readers.items():
        numbers = []
        for answer, key in zip(answers[level::num_levels], keys, strict=True):
            try:
                numbers.append(read(tuple(answer.tolist())))
            except ValueError as error:
                message = (
                    f"sample {key}, level {rules.names[level]}: {error}; add it to "
                    f"`levels.{level}.classes`, or fix that row of the manifest"
                )
                raise UnfitSampleError(message) from None
        counts[level] = len(numbers)
        places = learned[starts[level::num_levels]] - 1
        classes[level] = (tensor(places), tensor(np.array(numbers, dtype=np.int64)))
    return Learned(
        places=tensor(learned[is_text] - 1),
        targets=tensor(targets[is_text]),
        groups=TargetGroups(tensor(levels[is_text]), num_levels),
        classes=classes,
        num_by_group=tuple(counts.tolist()),
        num_tokens=len(learned),
    )


def _check_num_levels(
    segments: np.ndarray, bounds: np.ndarray, keys: Sequence[str], rules: LevelRules
) -> None:
    counts = np.bincount(segments, minlength=len(bounds))
    num_runs = counts[counts > 0]
    if len(num_runs) == len(keys) and (num_runs == len(rules.names)).all():
        return
    # Padding has no runs and is between samples; a sample without runs looks the same.
    wrong = np.flatnonzero(num_runs != len(rules.names))
    sample = f"sample {keys[wrong[0]]}" if len(num_runs) == len(keys) else f"a sample of {keys}"
    number = num_runs[wrong[0]] if len(wrong) else 0
    message = (
        f"{sample} has {number} learned answers, but there are {len(rules.names)} levels "
        f"({', '.join(rules.names)}); every sample needs one complete assistant turn per level: "
        "preprocess with `too_long: drop`"
    )
    raise UnfitSampleError(message)
