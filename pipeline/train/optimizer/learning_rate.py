"""Learning rate of a step: its schedule, and how it is set."""

from __future__ import annotations

import math

import torch

from slurm_jobs.formats.configs.training_parts import ScheduleConfig


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


_FLOOR_SHARE = {"onecycle": 1e-4, "cosine": 0.1, "constant": 1.0}
"""Final learning rate, as a share of the peak. onecycle: arXiv:1708.07120, with PyTorch's
final_div_factor of 1e4; cosine: a tenth, as in the LLaMA reports (arXiv:2302.13971)."""


def learning_rate_at(step: int, *, num_steps: int, peak: float, schedule: ScheduleConfig) -> float:
    """Return the learning rate of the step with index `step`.

    It rises linearly, reaches `peak` at the last warm-up step, and then follows half a cosine
    period down to the schedule's share of the peak.
    """
    num_warmup = round(schedule.warmup_share * num_steps)
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    floor = _FLOOR_SHARE[schedule.kind]
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
