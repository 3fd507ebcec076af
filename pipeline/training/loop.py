"""The training loop: one page, each host-device synchronisation marked SYNC.

It waits for the device once a step. Models do so within the passes a few times a
microbatch, as often with one layer as with sixty: marked in `pipeline.models`, where
they are called, and counted by its tests.

The ranks agree before each update on its soundness and on stop and checkpoint
requests, so that no rank enters a collective alone, and that no update from a
loss or a gradient that is not finite reaches the weights. Under fp16 both may
overflow: the ranks leave out that update together, and go on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pipeline.data.batch import Batch
from pipeline.timing import StepCounts, StepOutcome, StepRecorder
from pipeline.training.attention_check import check_attention
from pipeline.training.batches import arrange, losses_of
from pipeline.training.boundary import Boundary, Verdict
from pipeline.training.checkpoint import TimedSaver
from pipeline.training.copy_ahead import CopyAhead
from pipeline.training.device import Workplace
from pipeline.training.optimizer import set_learning_rate
from pipeline.training.ranks import Ranks
from pipeline.training.scaling import Scaling
from pipeline.training.schedule import learning_rate_at
from pipeline.training.strategies import Spread, Strategy
from pipeline.training.strategies.effect import check_gradients
from slurm_jobs.common.errors import StageError
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)

Watch = Callable[[range], Iterable[int]]
"""Gives the steps back one by one, and so sees each one begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSetup:
    """Everything that the loop uses and does not change by itself."""

    config: TrainConfig
    num_steps: int
    first_step: int = 0
    """What the records add to the steps counted here: those of the phases before."""
    strategy: Strategy
    spread: Spread
    scaling: Scaling
    batches: Iterator[list[Batch]]
    """One list of microbatches a step, from the step at which the loop begins."""
    peek: Callable[[], Sequence[Batch] | None] = lambda: None
    """The list that comes next, if it is there already; does not wait."""
    count: Callable[[Sequence[Batch]], StepCounts]
    """Counts those of a step."""
    workplace: Workplace
    ranks: Ranks
    recorder: StepRecorder
    boundary: Boundary
    saver: TimedSaver
    """Saves the state, and ends what it began; called by all ranks at once."""
    look: Callable[[int], object] | None = None
    """Looks at held-out samples after so many steps of all phases; called by all ranks at once."""
    report: Callable[[int, StepOutcome, StepCounts, float], None]
    """Told after each step: steps done, of all phases; what came of it; this rank's counts, and
    how long it waited for data, seconds."""


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
        StageError, StageConfigError: a loss or a gradient is not finite, or not there.
    """
    recorder, loss, waited = setup.recorder, None, _waited(setup.ranks)
    copies, first = CopyAhead(setup.workplace.device), setup.first_step
    for number in watch(range(first + start_step, first + setup.num_steps)):
        step = number - first
        recorder.start_step(number)
        batches = next(setup.batches)
        recorder.lap("data_wait_s")
        counts, learned = setup.count(batches), _learned(batches)
        recorder.lap("other_s")
        num_learned = setup.ranks.sums(learned)
        recorder.lap(waited, part="rank_wait_data_s")  # for the rank whose batch came last

        share = _accumulate(setup, copies, batches, num_learned, is_first=step == start_step)
        norm = _clip(setup)
        # SYNC: once a step the loop waits for the device, when gradients are queued and before the
        # update: what is not finite must not be applied. The update is queued (see LocalOptimizer).
        local_loss, grad_norm = torch.stack([share, norm]).tolist()
        recorder.lap("optimizer_s")

        verdict = setup.boundary.agree(step + 1, local_loss, grad_norm)
        loss = verdict.loss if math.isfinite(verdict.loss) else loss
        recorder.lap(waited)  # for the slowest rank
        if not verdict.is_finite:
            raise _not_finite(setup, step, (verdict.loss, local_loss, grad_norm), batches)
        learning_rate = (_skip if verdict.skip else _update)(setup, step, batches)
        recorder.lap("optimizer_s")
        outcome = _outcome(verdict, learning_rate, grad_norm)
        _save(setup, verdict, step + 1, counts, outcome)
        _look(setup, verdict, step + 1)
        setup.report(number + 1, outcome, counts, recorder.seconds_so_far("data_wait_s"))
        recorder.end_step(counts, outcome)
        if verdict.stop:
            return LoopEnd(num_steps_done=step + 1, stopped=True, final_loss=loss)
    return LoopEnd(num_steps_done=setup.num_steps, stopped=False, final_loss=loss)


def _waited(ranks: Ranks) -> str:
    """The step phase of a lap in which the ranks meet: a rank that is alone waits for nobody."""
    return "rank_wait_s" if ranks.num_ranks > 1 else "other_s"


def _learned(batches: Sequence[Batch]) -> list[float]:
    """How many tokens, or answers told by class, of each level this rank learns in the step."""
    here = zip(*(batch.learned.num_by_level for batch in batches), strict=True)
    return [float(sum(nums)) for nums in here]


def _shares(config: TrainConfig, num_learned: Sequence[float]) -> list[float]:
    """What one token, or answer told by class, of each level counts in the loss of the step.

    The loss is the sum over levels of weight and mean, over what all ranks learn of a level.
    """
    weights = [level.weight for level in config.levels] or [1.0]
    return [weight / max(1.0, num) for weight, num in zip(weights, num_learned, strict=True)]


def _accumulate(
    setup: LoopSetup,
    copies: CopyAhead,
    batches: Sequence[Batch],
    num_learned: Sequence[float],
    *,
    is_first: bool,
) -> torch.Tensor:
    """Forward and backward of each microbatch; this rank's part of the loss, on the device.

    `num_learned` is what all ranks learn of each level.

    SYNC: within the passes models read a few values of the device.
    """
    strategy, spread = setup.strategy, setup.spread
    if is_first:
        check_attention(
            batches,
            strategy=strategy,
            spread=spread,
            scaling=setup.scaling,
            workplace=setup.workplace,
            ranks=setup.ranks,
        )
        setup.recorder.lap("other_s")
    shares, num_ranks = _shares(setup.config, num_learned), setup.ranks.num_ranks
    weights = [num_ranks * s for s in shares]  # gradients are averaged: this makes that a sum
    loss = torch.zeros((), device=setup.workplace.device)
    for number, batch in enumerate(batches, start=1):
        inputs = arrange(copies.take(batch), setup.workplace, spread.bare.layout)
        following = batches[number:] or setup.peek()
        if following:
            copies.begin(following[0])  # beside what is queued next
        setup.recorder.lap("host_to_device_s")
        with strategy.microbatch(spread.model, is_last=number == len(batches)):
            with strategy.forward_context():
                batch_loss = _weighted(losses_of(spread.model, inputs), weights)
            setup.recorder.lap("forward_s")
            setup.scaling.backward(batch_loss)
        loss += batch_loss.detach()
        setup.recorder.lap("backward_s")
    if is_first:
        check_gradients(spread.bare, setup.ranks)
    return loss / num_ranks


def _weighted(losses: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Sum of the losses by their weights, which stay on the host: no copy to the device."""
    if len(weights) == 1:
        return (losses * weights[0]).sum()
    return torch.stack([loss * w for loss, w in zip(losses, weights, strict=True)]).sum()


def _clip(setup: LoopSetup) -> torch.Tensor:
    """Clip the gradients; their norm before that, of the whole model, on the device."""
    setup.scaling.unscale(setup.spread.optimizer)
    max_norm = setup.config.optimizer.grad_clip_norm or math.inf
    norm = nn.utils.clip_grad_norm_(setup.spread.bare.parameters(), max_norm)
    whole = norm.full_tensor() if isinstance(norm, DTensor) else norm
    return whole.to(setup.workplace.device)  # with cpu_offload it comes from the host


def _update(setup: LoopSetup, step: int, _batches: Sequence[Batch]) -> float:
    """Step and reset; the learning rate."""
    learning_rate = _learning_rate(setup, step)
    set_learning_rate(setup.spread.optimizer, learning_rate)
    setup.scaling.step(setup.spread.optimizer)
    setup.spread.optimizer.zero_grad()
    return learning_rate


def _skip(setup: LoopSetup, step: int, batches: Sequence[Batch]) -> float:
    """Skip the update, because the loss or a gradient overflowed under fp16.

    Returns the learning rate that the step had.

    Raises:
        StageError: there have been too many in a row.
    """
    scaling, scale = setup.scaling, setup.scaling.scale  # SYNC: the host reads the scale
    scaling.skip()
    setup.spread.optimizer.zero_grad()
    num_skips = scaling.num_skips_in_a_row
    if num_skips >= setup.config.scaler.max_skips:
        message = (
            f"the loss or the gradients of {num_skips} steps in a row overflowed under fp16, last "
            f"in step {step}, with the loss scaled by {scale:g}; samples of this rank: "
            f"{_keys(batches)}. Check these samples, lower optimizer.learning_rate or "
            "scaler.init_scale, or set `precision: fp32`"
        )
        raise StageError(message)
    if setup.ranks.rank == 0:
        log.warning(
            "step %d is skipped on all ranks: the loss or a gradient overflowed under fp16, with "
            "the loss scaled by %g (%d in a row)",
            step, scale, num_skips,
        )  # fmt: skip
    return _learning_rate(setup, step)


def _outcome(verdict: Verdict, learning_rate: float, grad_norm: float) -> StepOutcome:
    """Of a skipped step the norm is infinite on every rank, whichever has seen it."""
    norm = math.inf if verdict.skip else grad_norm
    return StepOutcome(loss=verdict.loss, learning_rate=learning_rate, grad_norm=norm)


def _learning_rate(setup: LoopSetup, step: int) -> float:
    return learning_rate_at(
        step,
        num_steps=setup.num_steps,
        peak=setup.config.optimizer.learning_rate,
        schedule=setup.config.schedule,
    )


def _keys(batches: Sequence[Batch]) -> str:
    return ", ".join(key for batch in batches for key in batch.keys)


def _save(
    setup: LoopSetup,
    verdict: Verdict,
    num_steps_done: int,
    counts: StepCounts,
    outcome: StepOutcome,
) -> None:
    """Save what the ranks agreed to save, or see what came of a save that went on beside steps."""
    if verdict.save:
        setup.recorder.write_so_far(counts, outcome)  # records never lag behind a checkpoint
        setup.saver.save(num_steps_done, outcome.loss, must_end=verdict.must_end)
    elif verdict.upload_ended:
        setup.saver.finish()
    else:
        return
    setup.recorder.lap("checkpoint_s")


def _look(setup: LoopSetup, verdict: Verdict, num_steps_done: int) -> None:
    """Look at held-out samples where that is due; at a stop the next attempt does it first."""
    if setup.look is None or verdict.stop:
        return
    number, ends_phase = setup.first_step + num_steps_done, num_steps_done == setup.num_steps
    if setup.config.evaluate.is_look_due(number, ends_phase=ends_phase):
        setup.look(number)
        setup.recorder.lap("evaluation_s")


def _not_finite(
    setup: LoopSetup, step: int, found: tuple[float, float, float], batches: Sequence[Batch]
) -> StageError:
    """`found` are the loss of all ranks, that of this one, and the gradient norm."""
    loss, local_loss, grad_norm = found
    is_halved = setup.workplace.precision != "fp32"
    other = ", lower optimizer.learning_rate, or set `precision: fp32`"
    remedy = other if is_halved else ", or lower optimizer.learning_rate"
    here = "finite" if math.isfinite(local_loss) else str(local_loss)
    return StageError(
        f"the loss of step {step} is {loss} (this rank's share is {here}), its gradient norm "
        f"{grad_norm}; samples of this rank: {_keys(batches)}. Nothing of this step was "
        f"applied or saved: look at these samples{remedy}"
    )
