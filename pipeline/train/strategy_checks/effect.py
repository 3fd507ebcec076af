"""Checks that the requested settings took effect: such errors would train silently.

Observed: plugins that were ignored, optimizers of unused parameters (with a normal loss), and
shards of different models combined into one.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import nn

from pipeline.models.computation.compiling import chosen_layers
from pipeline.models.finetuning.packed_linear import STORAGE_DTYPES, quantized_names
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, StrategyFacts, placement_of
from pipeline.train.strategy_checks.equal_weights import listed
from pipeline.train.strategy_checks.expected_facts import asked_of
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.accelerate_file import AccelerateFile
from slurm_jobs.formats.configs.train import TrainConfig


def check_effect(
    parallel: ParallelModel,
    facts: StrategyFacts,
    config: TrainConfig,
    rank_device: RankDevice,
    num_ranks: int,
    *,
    file: AccelerateFile | None = None,
) -> None:
    """Compare the observed state of model and optimizer with the requested one.

    `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: naming the first difference.
    """
    bare = parallel.bare
    requested = asked_of(bare, config, rank_device, file)
    packed = quantized_names(bare)
    storage = None if config.quantize is None else STORAGE_DTYPES[config.quantize.storage]
    num_layers = sum(len(tower) for tower in bare.towers())
    compiled = [] if config.compile is None else chosen_layers(bare, config.compile)
    num_recomputed = num_layers if config.activation_checkpointing else 0
    comparisons: list[tuple[str, object, object]] = []
    for name, parameter in bare.named_parameters():
        dtype = storage if name in packed else torch.float32
        comparisons += [
            (f"{name} has the placement", placement_of(parameter), requested.placement),
            (f"{name} is on", parameter.device.type, requested.device),
            (f"{name} is stored as", str(parameter.dtype), str(dtype)),
        ]
    comparisons += [
        ("accelerate's distributed_type:", facts.distributed_type, requested.distributed_type),
        ("the model is called as:", facts.model_class, requested.model_class),
        ("ranks in the mesh:", math.prod(facts.mesh.values()), num_ranks),
        ("parts gathered one at a time:", facts.num_units, requested.num_units),
        ("computes in:", ", ".join(facts.compute_dtypes), str(rank_device.dtype)),
        ("reduces as:", ", ".join(facts.reduce_dtypes), requested.reduces),
        ("layers recomputed in the backward pass:", facts.num_recomputed, num_recomputed),
        ("layers that are compiled:", facts.num_compiled, len(compiled)),
    ]
    for what, observed, expected in comparisons:
        if observed != expected:
            message = (
                f"strategy {config.strategy} did not take effect: {what} {observed}, expected "
                f"{expected}; use the versions of constraints.txt, or another `strategy`"
            )
            raise StageConfigError(message)
    check_optimizer(bare, parallel.optimizer)


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
    lines = [f"{listed(names)}: {what}" for what, names in problems.items() if names]
    if num_strange:
        lines.append(f"{num_strange} parameters of the optimizer are not the model's")
    if lines:
        message = (
            f"optimizer and model do not belong together ({'; '.join(lines)}): make the optimizer "
            "when the strategy has parallelized the model, of all parameters that learn"
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
                f"after the first backward pass {listed(names)} of rank {rank} have no gradient: "
                "nothing in this batch's loss depends on them; freeze them, or let the model use "
                "them for every batch"
            )
            raise StageConfigError(message)
