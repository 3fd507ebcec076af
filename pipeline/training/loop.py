"""The training loop: one page, each host-device synchronisation marked SYNC.

The ranks agree before each update on its soundness and on stop and checkpoint
requests, so that no rank enters a collective alone, and that no update from a
loss or a gradient that is not finite reaches the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pipeline.data.batch import Batch
from pipeline.models import VisionLanguageModel
from pipeline.timing import StepCounts, StepOutcome, StepRecorder
from pipeline.training.batches import count_batches, loss_of, to_device
from pipeline.training.boundary import Boundary
from pipeline.training.device import Workplace
from pipeline.training.optimizer import set_learning_rate
from pipeline.training.ranks import Ranks
from pipeline.training.schedule import learning_rate_at
from pipeline.training.strategy import autocast
from slurm_jobs.common.errors import StageError
from slurm_jobs.common.stage_config.train import TrainConfig

Watch = Callable[[range], Iterable[int]]
"""Gives the steps back one by one, and so sees each one begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSetup:
    """Everything that the loop uses and does not change by itself."""

    config: TrainConfig
    num_steps: int
    model: VisionLanguageModel
    optimizer: torch.optim.Optimizer
    batches: Iterator[list[Batch]]
    """One list of microbatches a step, from the step at which the loop begins."""
    workplace: Workplace
    ranks: Ranks
    recorder: StepRecorder
    boundary: Boundary
    save: Callable[[int, float], None]
    """Saves the state after so many steps, with the loss; called by all ranks at once."""
    report: Callable[[int, float, StepCounts], None]
    """Told after each step: steps done, loss, this rank's counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopEnd:
    """Where the loop ended."""

    num_steps_done: int
    stopped: bool
    final_loss: float | None
    """None if no step was made."""


def run_steps(setup: LoopSetup, start_step: int, watch: Watch = iter) -> LoopEnd:
    """Make the steps from `start_step` on, until the last one or a request to stop.

    Raises:
        StageError: the loss or the gradient's norm is not finite; its update was not made.
    """
    recorder, ranks, loss = setup.recorder, setup.ranks, None
    for step in watch(range(start_step, setup.num_steps)):
        recorder.start_step(step)
        batches = next(setup.batches)
        recorder.lap("data_wait_s")
        counts = count_batches(batches)
        recorder.lap("other_s")
        (num_supervised,) = ranks.sums([counts.num_supervised_tokens])
        recorder.lap("rank_wait_s")  # for the rank whose batch came last

        loss_sum = _accumulate(setup, batches, num_supervised)
        norm = _clip(setup)
        # SYNC: once a step, when its gradients are queued, the host waits for the device: before
        # the update, because what is not finite must not be applied. The update itself is queued.
        local_loss_sum, grad_norm = torch.stack([loss_sum, norm]).tolist()
        recorder.lap("optimizer_s")

        verdict = setup.boundary.agree(step + 1, local_loss_sum, grad_norm)
        loss = verdict.loss_sum / max(1.0, num_supervised)
        recorder.lap("rank_wait_s")  # for the slowest rank
        if not verdict.is_finite:
            raise _not_finite(step, loss, local_loss_sum, grad_norm, batches)
        learning_rate = _update(setup, step)
        recorder.lap("optimizer_s")
        outcome = StepOutcome(loss=loss, learning_rate=learning_rate, grad_norm=grad_norm)
        if verdict.save:
            recorder.write_so_far(counts, outcome)  # records never lag behind a checkpoint
            setup.save(step + 1, loss)
            recorder.lap("checkpoint_s")
        setup.report(step + 1, loss, counts)
        recorder.end_step(counts, outcome)
        if verdict.stop:
            return LoopEnd(num_steps_done=step + 1, stopped=True, final_loss=loss)
    return LoopEnd(num_steps_done=setup.num_steps, stopped=False, final_loss=loss)


def _accumulate(setup: LoopSetup, batches: Sequence[Batch], num_supervised: float) -> torch.Tensor:
    """Forward and backward of each microbatch; the summed loss of this rank, on the device."""
    # FSDP averages gradients over the ranks; this makes the average a mean over all tokens.
    scale = setup.ranks.num_ranks / max(1.0, num_supervised)
    loss_sum = torch.zeros((), device=setup.workplace.device)
    for batch in batches:
        inputs = to_device(batch, setup.workplace, setup.model.layout)
        setup.recorder.lap("host_to_device_s")
        with autocast(setup.config, setup.workplace):
            batch_loss = loss_of(setup.model, inputs)
        setup.recorder.lap("forward_s")
        (batch_loss * scale).backward()
        loss_sum += batch_loss.detach()
        setup.recorder.lap("backward_s")
    return loss_sum


def _clip(setup: LoopSetup) -> torch.Tensor:
    """Clip the gradients; their norm before that, the same on every rank, on the device."""
    max_norm = setup.config.optimizer.grad_clip_norm or math.inf
    norm = nn.utils.clip_grad_norm_(setup.model.parameters(), max_norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _update(setup: LoopSetup, step: int) -> float:
    """Step and reset; the learning rate."""
    learning_rate = learning_rate_at(
        step,
        num_steps=setup.num_steps,
        peak=setup.config.optimizer.learning_rate,
        schedule=setup.config.schedule,
    )
    set_learning_rate(setup.optimizer, learning_rate)
    setup.optimizer.step()
    setup.optimizer.zero_grad()
    return learning_rate


def _not_finite(
    step: int, loss: float, local_loss_sum: float, grad_norm: float, batches: Sequence[Batch]
) -> StageError:
    keys = ", ".join(key for batch in batches for key in batch.keys)
    here = "finite" if math.isfinite(local_loss_sum) else str(local_loss_sum)
    return StageError(
        f"the loss of step {step} is {loss} (this rank's share is {here}), its gradient norm "
        f"{grad_norm}; samples of this rank: {keys}. Nothing of this step was applied or saved: "
        "look at these samples, lower optimizer.learning_rate, or set `precision: fp32`"
    )
