"""Errors of a training whose loss or gradients are not finite."""

from __future__ import annotations

import math

from pipeline.train.verdict import StepVerdict
from slurm_jobs.base.errors import StageError


def not_finite(step: int, verdict: StepVerdict, keys: str, *, precision: str) -> StageError:
    """Return the error of a step that cannot be skipped; `keys`: of this rank's samples."""
    other = ", lower optimizer.learning_rate, or set `precision: fp32`"
    remedy = other if precision != "fp32" else ", or lower optimizer.learning_rate"
    here = "finite" if math.isfinite(verdict.local_loss) else str(verdict.local_loss)
    return StageError(
        f"the loss of step {step} is {verdict.loss} (this rank's share is {here}), its gradient "
        f"norm {verdict.grad_norm}; samples of this rank: {keys}. Nothing of this step was "
        f"applied or saved: check these samples{remedy}"
    )


def too_many_skips(step: int, verdict: StepVerdict, keys: str, *, num_skips: int) -> StageError:
    """Return the error of fp16 steps that were skipped one after another, the last one `step`."""
    return StageError(
        f"the loss or the gradients of {num_skips} steps in a row overflowed under fp16, last in "
        f"step {step}, with the loss scaled by {verdict.scale:g}; samples of this rank: {keys}. "
        "Check these samples, lower optimizer.learning_rate or scaler.init_scale, or set "
        "`precision: fp32`"
    )
