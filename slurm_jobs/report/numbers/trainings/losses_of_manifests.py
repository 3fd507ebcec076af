"""Losses of the manifests of a mixed data set, from the step records. PURE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_jobs.formats.timings.manifest_losses import (
    loss_field,
    recorded_manifests,
    targets_field,
)
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.training_model import LossOfManifest


def losses_of_manifests(attempts: Sequence[AttemptSteps]) -> tuple[LossOfManifest, ...]:
    """Return the losses of the newest attempt's manifests, over all attempts that recorded them."""
    names = _names(attempts[-1])
    losses = []
    for name in names:
        pairs = [_losses_and_targets(attempt, name) for attempt in attempts]
        means = np.concatenate([of_steps for of_steps, _ in pairs])
        nums = np.concatenate([of_steps for _, of_steps in pairs])
        tenth = max(1, len(nums) // 10)
        losses.append(
            LossOfManifest(
                name=name,
                num_targets=int(nums.sum(dtype=np.int64)),
                first_loss=_mean(means[:tenth], nums[:tenth]),
                last_loss=_mean(means[-tenth:], nums[-tenth:]),
            )
        )
    return tuple(losses)


def _names(attempt: AttemptSteps) -> tuple[str, ...]:
    return recorded_manifests(attempt.ranks[attempt.longest].header)


def _losses_and_targets(attempt: AttemptSteps, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean loss of each step that counts, and its number of targets."""
    names, steps = _names(attempt), attempt.kept(attempt.longest)
    if name not in names:
        return np.full(len(steps), np.nan), np.zeros(len(steps), dtype=np.int64)
    number = names.index(name)
    return steps[loss_field(number)], steps[targets_field(number)]


def _mean(means: np.ndarray, nums: np.ndarray) -> float | None:
    is_known = np.isfinite(means) & (nums > 0)
    if not is_known.any():
        return None
    return float(np.average(means[is_known].astype(np.float64), weights=nums[is_known]))
