"""Training loop, with each synchronisation of host and device marked SYNC.

The host waits for the device once per step, for the previous step: the device has a whole step
queued meanwhile. Models wait within the passes a few times per microbatch, with any number of
layers: marked in `pipeline.models`, and counted by its tests.

No update from a loss or a gradient that is not finite reaches the weights: the device skips it
on all ranks (`pipeline.train.verdict`). The host reads that one step later, before it queues
the next update: under fp16 it counts the skip and continues, otherwise the attempt fails. At a
checkpoint, a stop, an evaluation and the last step it reads the verdict before anything else.

The ranks agree on stop and checkpoint requests (`save_decision`), so that no rank enters a
collective alone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from pipeline.data.batch import Batch
from pipeline.timing.recorder import StepCounts, StepOutcome
from pipeline.train.attention.packed_check import check_packed_rows
from pipeline.train.attention.varlen_check import check_attention
from pipeline.train.checkpoints.save_decision import Boundary
from pipeline.train.not_finite import not_finite, too_many_skips
from pipeline.train.optimizer.gradient_clipping import clip_gradients
from pipeline.train.optimizer.learning_rate import learning_rate_at, set_learning_rate
from pipeline.train.strategy_checks.effect import check_gradients
from pipeline.train.training_data.batches import (
    Copied,
    arrange,
    copy_batch,
    losses_of,
    make_counter,
)
from pipeline.train.verdict import QueuedVerdict, judge
from slurm_jobs.formats.timings.manifest_losses import ManifestLoss

if TYPE_CHECKING:
    from pipeline.train.trainer import Trainer

log = logging.getLogger(__name__)

Watch = Callable[[range], Iterable[int]]
"""Yields the steps one by one, and so observes when each begins."""
Report = Callable[[int, StepOutcome, StepCounts, float, float], None]
"""Called once for each step: steps done, of all phases; the outcome; this rank's counts; its
wait for data, seconds; when the step ended, by `time.monotonic`."""


class StepBatches(Protocol):
    """Microbatches of each step of this rank."""

    def __next__(self) -> list[Batch]: ...

    def peek(self) -> list[Batch] | None:
        """Return those of the next step if they are ready."""
        ...


class StepSaver(Protocol):
    """Saves checkpoints between steps; see `MeasuredSaver`."""

    def save(self, step: int, loss: float, *, must_end: bool) -> None:
        """Save the state after `step` steps; a collective."""
        ...

    def finish(self) -> None:
        """Wait for a background save, and read its result."""
        ...

    def has_ended_here(self) -> bool:
        """Check whether a background save has ended on this rank."""
        ...


class CopyAhead:
    """Copies the next microbatch to the device while the model computes on the current one.

    On a GPU the copies have their own stream, so they run in parallel with kernels. On a CPU
    nothing is copied, and PyTorch's CPU streams do nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream()
        self._batch: Batch | None = None
        self._copied: Copied | None = None

    def begin(self, batch: Batch) -> None:
        """Queue the copies of a microbatch; no SYNC.

        Call it for microbatch n + 1 between `take` of microbatch n and the forward pass of n. The
        copies wait for all work that is queued until then, because they may get memory which that
        work still uses. They run in parallel with the forward pass of n.
        """
        self._stream.wait_stream(self._module.current_stream())
        with self._module.stream(self._stream):
            self._copied = copy_batch(batch, self._device)
        self._batch = batch  # kept while it is copied from

    def take(self, batch: Batch) -> Copied:
        """Return the microbatch for use on the device; copied now unless `begin` did it."""
        if self._batch is not batch or self._copied is None:
            self.begin(batch)
        self._module.current_stream().wait_stream(self._stream)
        copied, self._batch, self._copied = self._copied, None, None
        assert copied is not None
        return copied


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopEnd:
    """End of the loop."""

    num_steps_done: int
    stopped: bool
    final_loss: float | None
    """None if no step was made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Queued:
    """Step that is queued on the device, and whose verdict the host has not read."""

    step: int
    batches: Sequence[Batch]
    """Kept until the device has copied them."""
    counts: StepCounts
    num_targets: Sequence[float]
    """Of each group, on all ranks."""
    verdict: QueuedVerdict
    learning_rate: float
    data_wait_s: float
    ended_s: float


def run_steps(trainer: Trainer, start_step: int, watch: Watch = iter) -> LoopEnd:
    """Run the steps of the current phase from `start_step` on, until its last one or a stop.

    Raises:
        StageError, StageConfigError: a loss or a gradient is not finite, or is missing.
    """
    phase, ranks, recorder = trainer.current, trainer.ranks, trainer.recorder
    saver, loss = trainer.saver, None
    boundary = Boundary(ranks, phase.config.checkpoint, phase.num_steps, saver.has_ended_here)
    count = make_counter(trainer.model.parallel.bare, phase.dataset.info)
    wait_phase = "rank_wait_s" if ranks.num_ranks > 1 else "other_s"  # a single rank never waits
    copies, first = CopyAhead(trainer.rank_device.device), phase.first_step
    previous: _Queued | None = None
    for number in watch(range(first + start_step, first + phase.num_steps)):
        step = number - first  # `number` counts the steps of all phases, `step` those of this one
        recorder.start_step(number)
        batches = next(trainer.batches)
        recorder.lap("data_wait_s")
        counts, num_own_targets = count(batches), _num_targets(batches)
        recorder.lap("other_s")
        num_targets = ranks.sums(num_own_targets)
        recorder.lap(wait_phase, part="rank_wait_data_s")  # for the rank with the latest batch

        losses = _accumulate(trainer, copies, batches, num_targets, is_first=step == start_step)
        norm = _clip(trainer)
        recorder.lap("optimizer_s")
        scale = trainer.model.scaling.scale_on_device
        verdict = judge(losses.share, norm, scale, ranks, losses.by_manifest)
        recorder.lap(wait_phase)  # for the slowest rank
        if previous is not None:
            # SYNC: once per step the host waits for the verdict of the previous step, while the
            # device has this step queued. The verdict is read before `_update`, so that no update
            # is queued after a fault.
            loss = _finite_or(_conclude(trainer, previous).loss, loss)
        learning_rate = _update(trainer, step, verdict)
        recorder.lap("optimizer_s")

        agreed = boundary.agree(step + 1)
        recorder.lap(wait_phase)
        previous = _Queued(
            step=step,
            batches=batches,
            counts=counts,
            num_targets=num_targets,
            verdict=verdict,
            learning_rate=learning_rate,
            data_wait_s=recorder.seconds_so_far("data_wait_s"),
            ended_s=time.monotonic(),
        )
        # Each step is reported once: in the branch below, or else by `_conclude` in the next step.
        # A step left to `_conclude` has a successor: `agree` saves after the last and at a stop.
        outcome = None
        evaluate = trainer.evaluate_held_out
        is_evaluation_due = evaluate is not None and phase.config.evaluate.is_evaluation_due(
            number + 1, ends_phase=step + 1 == phase.num_steps
        )
        if agreed.save or is_evaluation_due:
            outcome = _read(trainer, previous)  # SYNC: the next actions need the weights anyway
            loss = _finite_or(outcome.loss, loss)
            if agreed.save:
                recorder.write_so_far(counts, outcome)  # records never lag behind a checkpoint
                saved_loss = outcome.loss if loss is None else loss
                saver.save(step + 1, saved_loss, must_end=agreed.must_end)
                recorder.lap("checkpoint_s")
            # At a stop, the next attempt does this evaluation first.
            if evaluate is not None and is_evaluation_due and not agreed.stop:
                evaluate(number + 1)
                recorder.lap("evaluation_s")
            _report(trainer, previous, outcome, time.monotonic())
            previous = None
        elif agreed.upload_ended:
            saver.finish()
            recorder.lap("checkpoint_s")
        recorder.end_step(counts, outcome)  # without an outcome, `_conclude` adds it
        if agreed.stop:
            return LoopEnd(num_steps_done=step + 1, stopped=True, final_loss=loss)
    return LoopEnd(num_steps_done=phase.num_steps, stopped=False, final_loss=loss)


@dataclass(frozen=True, kw_only=True, slots=True)
class _StepLosses:
    """Losses of one rank in a step, on the device."""

    share: torch.Tensor
    """Its part of the step's loss."""
    by_manifest: torch.Tensor | None
    """Nats summed over its targets of each manifest; None unless they are recorded apart."""


def _num_targets(batches: Sequence[Batch]) -> list[float]:
    """Return the number of targets of each group on this rank in the step."""
    here = zip(*(batch.learned.num_by_group for batch in batches), strict=True)
    return [float(sum(nums)) for nums in here]


def _accumulate(
    trainer: Trainer,
    copies: CopyAhead,
    batches: Sequence[Batch],
    num_targets: Sequence[float],
    *,
    is_first: bool,
) -> _StepLosses:
    """Run forward and backward of each microbatch; return this rank's losses.

    `num_targets` is the number of targets of each group on all ranks. The loss is their mean, or
    the sum over levels of weight times mean.

    SYNC: within the passes models read a few values from the device.
    """
    strategy, parallel, scaling = (
        trainer.model.strategy,
        trainer.model.parallel,
        trainer.model.scaling,
    )
    ranks, rank_device, recorder = trainer.ranks, trainer.rank_device, trainer.recorder
    if is_first:
        check_attention(
            batches,
            strategy=strategy,
            parallel=parallel,
            scaling=scaling,
            rank_device=rank_device,
            ranks=ranks,
        )
        check_packed_rows(
            batches,
            strategy=strategy,
            parallel=parallel,
            needs=trainer.model.needs,
            data=trainer.current.dataset.info,
            rank_device=rank_device,
            ranks=ranks,
            spans=trainer.job.spans,
        )
        recorder.lap("other_s")
    # Strategies average gradients over ranks; multiplying by their number makes that a sum. The
    # returned loss needs no such factor, because the verdict adds up the losses of the ranks.
    weights = [ranks.num_ranks * weight for weight in _weights(trainer, num_targets)]
    loss = torch.zeros((), device=rank_device.device)
    by_manifest = None
    if len(num_targets) > 1 and not trainer.current.config.levels:
        by_manifest = torch.zeros(len(num_targets), device=rank_device.device)
    for number, batch in enumerate(batches, start=1):
        inputs = arrange(copies.take(batch), rank_device, parallel.bare.layout)
        following = batches[number:] or trainer.batches.peek()
        if following:
            copies.begin(following[0])  # in parallel with later work
        recorder.lap("host_to_device_s")
        with strategy.microbatch(parallel.model, is_last=number == len(batches)):
            with strategy.forward_context():
                losses = losses_of(parallel.model, inputs)
                batch_loss = _weighted(losses, weights)
            recorder.lap("forward_s")
            scaling.backward(batch_loss)
        loss += batch_loss.detach()
        if by_manifest is not None:
            by_manifest += losses.detach()
        recorder.lap("backward_s")
    if is_first:
        check_gradients(parallel.bare, ranks)
    share = loss / ranks.num_ranks  # without the factor of the weights
    return _StepLosses(share=share, by_manifest=by_manifest)


def _weights(trainer: Trainer, num_targets: Sequence[float]) -> list[float]:
    """Return the factor of each group's summed loss, which makes the loss of the step."""
    levels = trainer.current.config.levels
    if not levels:
        return [1.0 / max(1.0, sum(num_targets))] * len(num_targets)
    return [level.weight / max(1.0, n) for level, n in zip(levels, num_targets, strict=True)]


def _weighted(losses: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Return the weighted sum of the losses; weights stay on the host: no copy to the device."""
    if len(weights) == 1:
        return (losses * weights[0]).sum()
    return torch.stack([loss * w for loss, w in zip(losses, weights, strict=True)]).sum()


def _clip(trainer: Trainer) -> torch.Tensor:
    """Clip the gradients; return the norm of the whole model before clipping, on the device."""
    parallel = trainer.model.parallel
    trainer.model.scaling.unscale(parallel.optimizer)
    norm = clip_gradients(
        parallel.bare.parameters(), trainer.current.config.optimizer.grad_clip_norm
    )
    return norm.to(trainer.rank_device.device)  # with cpu_offload it is on the host


def _update(trainer: Trainer, step: int, verdict: QueuedVerdict) -> float:
    """Update unless the verdict is bad, and reset; return the learning rate."""
    config, optimizer = trainer.current.config, trainer.model.parallel.optimizer
    learning_rate = learning_rate_at(
        step,
        num_steps=trainer.current.num_steps,
        peak=config.optimizer.learning_rate,
        schedule=config.schedule,
    )
    set_learning_rate(optimizer, learning_rate)
    trainer.model.scaling.step(optimizer, verdict)
    optimizer.zero_grad()
    return learning_rate


def _conclude(trainer: Trainer, queued: _Queued) -> StepOutcome:
    """Record and report the previous step, which ended without an outcome; return it."""
    outcome = _read(trainer, queued)
    trainer.recorder.add_outcome(outcome)
    _report(trainer, queued, outcome, queued.ended_s)
    trainer.recorder.lap("other_s")
    return outcome


def _finite_or(loss: float, other: float | None) -> float | None:
    return loss if math.isfinite(loss) else other


def _read(trainer: Trainer, queued: _Queued) -> StepOutcome:
    """Return the outcome of a step; SYNC: waits for its verdict.

    Under fp16 the device has skipped a step whose loss or gradients overflowed.

    Raises:
        StageError: the loss or a gradient is not finite, or under fp16 too often in a row.
    """
    scaling, verdict = trainer.model.scaling, queued.verdict.read()
    trainer.recorder.lap("optimizer_s")
    keys = ", ".join(key for batch in queued.batches for key in batch.keys)
    if not (verdict.is_finite or scaling.is_on):
        raise not_finite(queued.step, verdict, keys, precision=trainer.rank_device.precision)
    scaling.count(is_skipped=not verdict.is_finite)
    if not verdict.is_finite:
        num_skips = scaling.num_skips_in_a_row
        if num_skips >= trainer.current.config.scaler.max_skips:
            raise too_many_skips(queued.step, verdict, keys, num_skips=num_skips)
        if trainer.ranks.rank == 0:
            log.warning(
                "step %d is skipped on all ranks: the loss or a gradient overflowed under fp16, "
                "with the loss scaled by %g (%d in a row)",
                queued.step, verdict.scale, num_skips,
            )  # fmt: skip
    return StepOutcome(
        loss=verdict.loss,
        learning_rate=queued.learning_rate,
        # For a skipped step it is infinite on every rank, wherever the overflow occurred.
        grad_norm=verdict.grad_norm if verdict.is_finite else math.inf,
        by_manifest=_by_manifest(verdict.group_losses, queued.num_targets),
    )


def _by_manifest(sums: Sequence[float], num_targets: Sequence[float]) -> list[ManifestLoss]:
    """Return the mean of each manifest's summed loss; none without sums, as with levels."""
    losses = []
    for loss, number in zip(sums, num_targets, strict=False):
        mean = loss / number if number else math.nan
        losses.append(ManifestLoss(mean, int(number)))
    return losses


def _report(trainer: Trainer, queued: _Queued, outcome: StepOutcome, ended_s: float) -> None:
    num_steps_done = trainer.current.first_step + queued.step + 1
    trainer.report(num_steps_done, outcome, queued.counts, queued.data_wait_s, ended_s)
