"""Per-rank optimizer state, loaded by other ranks or another sharding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata

from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from slurm_jobs.base.errors import StageConfigError

OPTIMIZER_NAME = "optimizer"
"""Name of a rank's own state among that of other objects."""


OptimizerStates = Mapping[str, Mapping[str, Any]]
"""By name of the parameter and of the value."""


def parts_of_all_ranks(stored: Mapping[str, STORAGE_TYPES]) -> dict[str, dict[str, Any]]:
    """Allocate the stored state of all ranks, by rank, in the layout of `TrainingState`."""
    ranks = sorted({key.split(".", 2)[1] for key in stored if key.startswith("extra.")})
    by_rank: dict[str, dict[str, Any]] = {}
    for rank in ranks:
        states: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, values in optimizer_values_of(stored, rank).items():
            for key, value in values.items():
                if isinstance(value, TensorStorageMetadata):
                    states[name][key] = torch.empty(value.size, dtype=value.properties.dtype)
                else:
                    states[name][key] = 0
        by_rank[rank] = {OPTIMIZER_NAME: dict(states)}
    return by_rank


def join_parts(optimizer: LocalOptimizer, by_rank: Mapping[str, OptimizerStates]) -> None:
    """Concatenate the ranks' states, and load this rank's part into the optimizer.

    Shards are rows, in the order of the ranks; if several ranks have the same, the first is
    used.

    Raises:
        StageConfigError: part of a parameter is missing in the checkpoint.
    """
    for name, shape in optimizer.shapes().items():
        states = [by_rank[rank][name] for rank in sorted(by_rank) if name in by_rank[rank]]
        moments: list[list[torch.Tensor]] = [[], []]
        for state in states:
            if sum(part.numel() for part in moments[0]) < shape.numel():
                for parts, part in zip(moments, optimizer.unpack(state), strict=True):
                    parts.append(part)
        num = sum(part.numel() for part in moments[0])
        if num != shape.numel():
            message = (
                f"the checkpoint's optimizer has {num} of {shape.numel()} numbers of {name}: "
                "continue with the number of ranks and the sharding that it was written with, "
                "or start the stage again with `slurm-jobs resume RUN --again STAGE`"
            )
            raise StageConfigError(message, resumes=[("--again", "STAGE")])
        whole = [torch.cat(parts).view(shape) for parts in moments]
        optimizer.take_whole(name, states[0]["step"], whole)


def optimizer_values_of(
    stored: Mapping[str, STORAGE_TYPES], rank: str
) -> dict[str, dict[str, STORAGE_TYPES]]:
    """Return what is stored of a rank's optimizer, by parameter and value."""
    prefix = f"extra.{rank}.{OPTIMIZER_NAME}."
    nested: dict[str, dict[str, STORAGE_TYPES]] = defaultdict(dict)
    for flat, value in stored.items():
        if flat.startswith(prefix):
            name, _, key = flat.removeprefix(prefix).rpartition(".")
            nested[name][key] = value
    return dict(nested)
