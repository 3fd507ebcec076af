"""Weights by which another tool interleaves its data sets. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from slurm_jobs.commands.starter.other_tools.foreign_training import ForeignTraining
from slurm_jobs.commands.starter.other_tools.tool_table import DataReference

_BY_WEIGHT = frozenset({"interleave_under", "interleave_over"})
"""Strategies of LLaMA-Factory with which data sets are not simply used whole."""


def with_weights(
    references: Sequence[DataReference], training: ForeignTraining
) -> list[DataReference]:
    """Return the data sets with their weights, if the tool interleaves several by weight."""
    weights = _weights(training, len(references))
    if weights is None:
        return list(references)
    return [
        replace(reference, proportion={"weight": weight})
        for reference, weight in zip(references, weights, strict=True)
    ]


def is_by_weight(training: ForeignTraining) -> bool:
    """Return whether the tool draws from its data sets instead of using each row once."""
    if "mix_strategy" in training.tool.table.values():
        return training.text("mix_strategy") in _BY_WEIGHT
    return training.setting("mix_weights") is not None


def _weights(training: ForeignTraining, num_sets: int) -> list[float] | None:
    """Return a weight for each data set; None if there are none, or not one for each."""
    if num_sets == 1 or not is_by_weight(training):
        return None
    if training.setting("mix_weights") is None:  # drawn from equally
        return [1.0] * num_sets
    weights = []
    for word in training.words("mix_weights"):
        weight = math.nan
        with suppress(ValueError):
            weight = float(word)
        if not 0 < weight < math.inf:
            return None
        weights.append(weight)
    return weights if len(weights) == num_sets else None
