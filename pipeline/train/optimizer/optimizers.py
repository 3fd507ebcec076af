"""Optimizer of a config on the model's parameters, with weight decay on matrices only."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.optimizer.local_adamw import LocalAdamW
from pipeline.train.optimizer.local_parts import local_part
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import OptimizerConfig

_OF_BITSANDBYTES = {
    "adamw_8bit": "AdamW8bit",
    "paged_adamw": "PagedAdamW",
    "paged_adamw_8bit": "PagedAdamW8bit",
}

_POSITIONS = ("position_embedding", "pos_embed")
"""Parts of the names of learned position tables; the second is Qwen3-VL's."""
_FP32_BYTES = 4
_MIN_8BIT_SIZE = 4096
"""Least size of a tensor whose state bitsandbytes stores in 8 bits; its default."""


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return AdamW of the config's kind; biases, norms and learned positions have no weight decay.

    Raises:
        StageConfigError: a paged kind, but the parameters are on a CPU.
    """
    groups = parameter_groups(model, config.weight_decay)
    options: dict[str, Any] = {"lr": config.learning_rate, "betas": (config.beta1, config.beta2)}
    if config.kind == "adamw":
        return LocalAdamW(groups, fused=True, **options)
    if config.is_paged and next(model.parameters()).device.type != "cuda":
        # bitsandbytes would continue without pages, with a single warning.
        message = (
            f"optimizer.kind is {config.kind}, which pages its state out of a GPU's memory, but "
            f"the parameters are on a {next(model.parameters()).device.type}: set `kind: "
            f"{config.kind.removeprefix('paged_')}`"
        )
        raise StageConfigError(message)
    from bitsandbytes import optim  # takes 1.5 s to load, which AdamW need not wait for

    names = {id(parameter): name for name, parameter in model.named_parameters()}
    make = functools.partial(getattr(optim, _OF_BITSANDBYTES[config.kind]), **options)
    return LocalOptimizer(groups, make, names)


def state_bytes(optimizer: torch.optim.Optimizer, config: OptimizerConfig, device_type: str) -> int:
    """Return device bytes of the state on this rank after one step: two numbers per parameter.

    Paged state counts as 0: it can be evicted. `optimizer` comes from `make_optimizer`.
    """
    if config.is_paged:
        return 0
    num_bytes = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            local = local_part(parameter)
            if local.device.type == device_type:
                is_8_bit = config.kind != "adamw" and local.numel() >= _MIN_8BIT_SIZE
                num_bytes += 2 * (1 if is_8_bit else _FP32_BYTES) * local.numel()
    return num_bytes


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Group the trained parameters, in the order of `named_parameters`: with weight decay, without.

    An empty group is left out: torch's `set_optimizer_state_dict` would assign another group's
    state to the group after it (torch 2.13), and the training could not be resumed.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_table = any(word in name for word in _POSITIONS)
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and not is_table else plain).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
