"""Check that every rank built the same weights and buffers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash
from torch import nn

from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageConfigError

_MOST_NAMES = 5
"""Number of parameters named in a message."""


def check_equal_weights(model: nn.Module, ranks: Ranks, *, shapes_only: bool = False) -> None:
    """Check that every rank built the same weights and buffers; a collective, before sharding.

    They are compared instead of sent: ranks differ for a reason (another file on a node,
    another version of a library) that the user must know. `shapes_only` is for weights that
    rank 0 sends.

    Raises:
        StageConfigError: on all ranks, naming tensors and the first rank that differs.
    """
    mine = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        mine[name] = f"{tensor.dtype} {tuple(tensor.shape)}"
        if not shapes_only:
            mine[name] += f" {xxhash.xxh3_64_hexdigest(bytes_of(tensor.detach()))}"
    by_rank, problem = ranks.gather(mine), None
    for rank, other in enumerate(by_rank):  # on rank 0
        first = by_rank[0]
        names = [n for n in first.keys() | other.keys() if first.get(n) != other.get(n)]
        if names and problem is None:
            problem = (
                f"rank {rank} has built other weights than rank 0 ({listed(sorted(names))}): the "
                "model's folder, its files or the versions of libraries differ between nodes; "
                "give all of them the same, on the shared file system"
            )
    if problem := ranks.from_main(problem):
        raise StageConfigError(problem)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor on the CPU."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
