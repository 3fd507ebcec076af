"""How the model is spread over the ranks. What was asked for runs, or the stage fails."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from pipeline.models import VisionLanguageModel
from pipeline.training.device import Workplace
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig


def apply_strategy(
    model: VisionLanguageModel, config: TrainConfig, workplace: Workplace, *, num_ranks: int
) -> VisionLanguageModel:
    """Move the model to the device and shard it; the fp32 weights stay the master copy.

    Raises:
        StageConfigError: `single` with several ranks.
    """
    if config.strategy == "single":
        if num_ranks != 1:
            message = (
                f"strategy is single, and the stage has {num_ranks} ranks: set `strategy: fsdp2`, "
                "or resources.nodes and tasks_per_node to 1"
            )
            raise StageConfigError(message)
        model.to(workplace.device)
    else:
        _shard(model, config, workplace, num_ranks)
    assert_strategy(model, config.strategy)
    return model.train()


def _shard(
    model: VisionLanguageModel, config: TrainConfig, workplace: Workplace, num_ranks: int
) -> None:
    model.to(workplace.device)
    mesh = init_device_mesh(workplace.device.type, (num_ranks,))
    policy = MixedPrecisionPolicy(param_dtype=workplace.dtype, reduce_dtype=torch.float32)
    for tower in model.towers():
        if count_parameters(tower) >= config.shard_unit_min_params:
            for layer in tower:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def autocast(config: TrainConfig, workplace: Workplace) -> contextlib.AbstractContextManager[None]:
    """Around a forward pass: fsdp2 casts by its own policy, a single process needs it for bf16."""
    if config.strategy == "single" and workplace.precision == "bf16":
        return torch.autocast(workplace.device.type, dtype=workplace.dtype)
    return contextlib.nullcontext()


def assert_strategy(model: nn.Module, strategy: str) -> None:
    """Compare what happened to the parameters with what was asked for.

    Raises:
        RuntimeError: naming the first parameter that is not as the strategy makes it.
    """
    expected = strategy == "fsdp2"
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor) != expected:
            kind = type(parameter).__name__
            message = f"strategy {strategy} did not take effect: {name} is a {kind}"
            raise RuntimeError(message)


def count_parameters(modules: Sequence[nn.Module]) -> int:
    """Parameters of all modules, sharded ones counted whole."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
