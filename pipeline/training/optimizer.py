"""AdamW over the model's parameters, with weight decay on matrices only."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from slurm_jobs.common.stage_config.optimizer import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW; biases, norms and learned positions have no weight decay."""
    return torch.optim.AdamW(
        parameter_groups(model, config.weight_decay),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=True,
    )


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Of what learns, two groups in the order of `named_parameters`: with weight decay, without."""
    decayed, plain = [], []
    learning = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    for name, parameter in learning:
        is_matrix = parameter.ndim >= 2 and "position_embedding" not in name
        (decayed if is_matrix else plain).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
