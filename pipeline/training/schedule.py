"""Learning rate as a pure function of the step."""

from __future__ import annotations

import math

from slurm_jobs.common.stage_config.optimizer import ScheduleConfig

_FLOOR_SHARE = {"onecycle": 1e-4, "cosine": 0.1, "constant": 1.0}
"""Final learning rate, as a share of the peak. onecycle: arXiv:1708.07120, with PyTorch's
final_div_factor of 1e4; cosine: a tenth, as in the LLaMA reports (arXiv:2302.13971)."""


def learning_rate_at(step: int, *, num_steps: int, peak: float, schedule: ScheduleConfig) -> float:
    """Return the learning rate after `step` of `num_steps` steps.

    It rises linearly to `peak`, which the last warm-up step has, and falls by half a cosine.
    """
    num_warmup = round(schedule.warmup_share * num_steps)
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    floor = _FLOOR_SHARE[schedule.kind]
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
