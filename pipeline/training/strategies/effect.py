"""Checks that the requested settings took effect: such errors would train silently.

Observed: plugins that were ignored, optimizers of unused parameters (with a normal loss), and
shards of different models combined into one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
import xxhash
from torch import nn

from pipeline.models.quantized import STORAGE_DTYPES, quantized_names
from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from pipeline.training.strategies.asked import Asked, asked_of
from pipeline.training.strategies.base import Spread, StrategyFacts, placement_of
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

_MOST_NAMES = 5
"""Number of parameters named in a message."""
_REMEDY = "; use the versions of constraints.txt, or another `strategy`"


def check_effect(
    spread: Spread,
    facts: StrategyFacts,
    config: TrainConfig,
    workplace: Workplace,
    num_ranks: int,
    *,
    file: AccelerateFile | None = None,
) -> None:
    """Compare the observed state of model and optimizer with the requested one.

    `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: naming the first difference.
    """
    asked = asked_of(spread.bare, config, workplace, file)
    _check_parameters(spread.bare, config, asked)
    found = {
        "accelerate's distributed_type": (facts.distributed_type, asked.distributed_type),
        "the model is called as": (facts.model_class, asked.model_class),
        "ranks in the mesh": (math.prod(facts.mesh.values()), num_ranks),
        "parts gathered one at a time": (facts.num_units, asked.num_units),
        "computes in": (", ".join(facts.compute_dtypes), str(workplace.dtype)),
        "reduces as": (", ".join(facts.reduce_dtypes), asked.reduces),
        "layers recomputed in the backward pass": (facts.num_recomputed, asked.num_recomputed),
        "layers that are compiled": (facts.num_compiled, asked.num_compiled),
    }
    for what, (is_so, wanted) in found.items():
        if is_so != wanted:
            message = (
                f"strategy {config.strategy} did not take effect: {what}: {is_so}, expected "
                f"{wanted}{_REMEDY}"
            )
            raise StageConfigError(message)
    check_optimizer(spread.bare, spread.optimizer)


def _check_parameters(bare: nn.Module, config: TrainConfig, asked: Asked) -> None:
    wanted = {
        "lies": asked.placement,
        "is on": asked.device,
    }
    packed = quantized_names(bare)
    for name, parameter in bare.named_parameters():
        if name in packed:
            assert config.quantize is not None
            wanted["is stored as"] = str(STORAGE_DTYPES[config.quantize.storage])
        else:
            wanted["is stored as"] = str(torch.float32)
        found = {
            "lies": placement_of(parameter),
            "is stored as": str(parameter.dtype),
            "is on": parameter.device.type,
        }
        for what, value in wanted.items():
            if found[what] != value:
                message = (
                    f"strategy {config.strategy} did not take effect: {name} {what} "
                    f"{found[what]}, expected {value}{_REMEDY}"
                )
                raise StageConfigError(message)


def check_optimizer(bare: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that exactly the trained parameters are in the optimizer, each in one group.

    Raises:
        StageConfigError: naming those that are not.
    """
    counts = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
    known = {id(parameter) for parameter in bare.parameters()}
    num_strange = sum(key not in known for key in counts)
    learning = [(name, p) for name, p in bare.named_parameters() if p.requires_grad]
    problems = {
        "in no group, and would never change": [n for n, p in learning if not counts[id(p)]],
        "in several groups": [n for n, p in learning if counts[id(p)] > 1],
    }
    told = [f"{_some(names)}: {what}" for what, names in problems.items() if names]
    if num_strange:
        told.append(f"{num_strange} parameters of the optimizer are not the model's")
    if told:
        message = (
            f"optimizer and model do not belong together ({'; '.join(told)}): make the optimizer "
            "when the strategy has spread the model, of all parameters that learn"
        )
        raise StageConfigError(message)


def check_gradients(bare: nn.Module, ranks: Ranks) -> None:
    """Check after the first backward pass that every trained parameter has a gradient.

    A collective.

    Raises:
        StageConfigError: on all ranks, naming those that have none.
    """
    lacking = [n for n, p in bare.named_parameters() if p.requires_grad and p.grad is None]
    by_rank = ranks.from_main(ranks.gather(lacking))
    for rank, names in enumerate(by_rank):
        if names:
            message = (
                f"after the first backward pass {_some(names)} of rank {rank} have no gradient: "
                "nothing in this batch's loss depends on them; freeze them, or let the model use "
                "them for every batch"
            )
            raise StageConfigError(message)


def check_equal_weights(model: nn.Module, ranks: Ranks, *, shapes_only: bool = False) -> None:
    """Check that every rank built the same weights and buffers; a collective, before sharding.

    They are compared instead of sent: ranks differ for a reason (another file on a node,
    another version of a library) that the user must know. `shapes_only` is for weights that
    rank 0 sends.

    Raises:
        StageConfigError: on all ranks, naming tensors and the first rank that differs.
    """
    mine = {
        name: f"{tensor.dtype} {tuple(tensor.shape)}" + ("" if shapes_only else f" {_hash(tensor)}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    by_rank = ranks.gather(mine)
    problem = ranks.from_main(_describe_difference(by_rank) if by_rank else None)
    if problem:
        raise StageConfigError(problem)


def _hash(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    return xxhash.xxh3_64_hexdigest(data)


def _describe_difference(by_rank: Sequence[Mapping[str, str]]) -> str | None:
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        names = [n for n in first.keys() | other.keys() if first.get(n) != other.get(n)]
        if names:
            return (
                f"rank {rank} has built other weights than rank 0 ({_some(sorted(names))}): the "
                "model's folder, its files or the versions of libraries differ between nodes; "
                "give all of them the same, on the shared file system"
            )
    return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
