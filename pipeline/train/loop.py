"""Training loop: one page, each host-device synchronisation marked SYNC.

The host waits for the device once per step, for the previous step: the device has a whole step
queued meanwhile. Models wait within the passes a few times per microbatch, with any number of
layers: marked in `pipeline.models`, and counted by its tests.

No update from a loss or a gradient that is not finite reaches the weights: the device skips it
on all ranks (`pipeline.train.verdict`). The host reads that one step later, before it queues
the next update: under fp16 it counts the skip and continues, otherwise the attempt fails. At a
checkpoint, a stop, an evaluation and the last step it reads the verdict before anything else.

The ranks agree on stop and checkpoint requests, so that no rank enters a collective alone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from pipeline.data.batch import Batch
from pipeline.timing.recorder import StepCounts, StepOutcome, StepRecorder
from pipeline.train.attention import check_attention
from pipeline.train.batches import Copied, arrange, copy_batch, losses_of
from pipeline.train.checkpoint import TimedSaver
from pipeline.train.device import Scaling, Workplace
from pipeline.train.optimizer import clip_gradients, set_learning_rate
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import Spread, Strategy
from pipeline.train.strategy_checks import check_gradients
from pipeline.train.verdict import QueuedVerdict, Verdict, judge
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_parts import CheckpointConfig, ScheduleConfig
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.process import stop_requested

# Agreement of all ranks after each step: whether to save or stop.
#
# And whether a background save has ended on all of them.


_S_PER_MIN = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Decision, equal on every rank."""

    save: bool
    must_end: bool
    """The save must be complete before anything else is done."""
    stop: bool
    upload_ended: bool
    """A background save has ended everywhere: its result can be read."""


class Boundary:
    """One small host collective per step. Only rank 0's clock decides when to save."""

    def __init__(
        self,
        ranks: Ranks,
        config: CheckpointConfig,
        num_steps: int,
        has_upload_ended: Callable[[], bool] = lambda: False,
        *,
        is_stop_requested: Callable[[], bool] = stop_requested,
        read_clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._config = config
        self._num_steps = num_steps
        self._is_stop_requested = is_stop_requested
        self._has_upload_ended = has_upload_ended
        self._read_clock_s = read_clock_s
        self._last_save_s = read_clock_s()

    def agree(self, num_steps_done: int) -> Agreement:
        """Sum the ranks' requests; every rank must call it after every step.

        Args:
            num_steps_done: Steps completed, this one included.
        """
        stop_here = float(self._is_stop_requested())
        due_here = float(self._ranks.rank == 0 and self._is_time())
        ended_here = float(self._has_upload_ended())
        num_stops, is_due, num_ended = self._ranks.sums([stop_here, due_here, ended_here])
        is_last = num_steps_done == self._num_steps
        every = self._config.every_steps
        is_wanted = num_stops or is_due or is_last or (every and num_steps_done % every == 0)
        if is_wanted:
            self._last_save_s = self._read_clock_s()
        return Agreement(
            save=bool(is_wanted),
            must_end=is_last or bool(num_stops),
            stop=bool(num_stops) and not is_last,
            upload_ended=num_ended == self._ranks.num_ranks,
        )

    def _is_time(self) -> bool:
        every_min = self._config.every_min
        elapsed_s = self._read_clock_s() - self._last_save_s
        return every_min is not None and elapsed_s >= every_min * _S_PER_MIN


# Copy of the next microbatch to the device while the model computes on the current one.
#
# On a GPU the copies have their own stream, so they run in parallel with kernels. On a CPU
# nothing is copied, and PyTorch's CPU streams do nothing.


class CopyAhead:
    """Copies one microbatch at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream()
        self._batch: Batch | None = None
        self._copied: Copied | None = None

    def begin(self, batch: Batch) -> None:
        """Queue the copies of a microbatch; no SYNC.

        Call it after the previous microbatch was taken, and before the model's computation on
        that one is queued. Copies wait for all work queued so far, because the device may reuse
        its memory for them. They run in parallel with later work.
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


# Learning rate as a pure function of the step.


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


log = logging.getLogger(__name__)

Watch = Callable[[range], Iterable[int]]
"""Yields the steps one by one, and so observes when each begins."""


Report = Callable[[int, StepOutcome, StepCounts, float, float], None]
"""Called once for each step: steps done, of all phases; the outcome; this rank's counts; its
wait for data, seconds; when the step ended, by `time.monotonic`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSetup:
    """Inputs of the loop, which it does not modify."""

    config: TrainConfig
    num_steps: int
    first_step: int = 0
    """Offset of the steps in records: the steps of the phases before."""
    strategy: Strategy
    spread: Spread
    scaling: Scaling
    batches: Iterator[list[Batch]]
    """One list of microbatches per step, from the first step of the loop."""
    peek: Callable[[], Sequence[Batch] | None] = lambda: None
    """Returns the next list if it is ready; does not wait."""
    count: Callable[[Sequence[Batch]], StepCounts]
    """Counts the contents of a step."""
    workplace: Workplace
    ranks: Ranks
    recorder: StepRecorder
    boundary: Boundary
    saver: TimedSaver
    """Saves the state, and ends running saves; called by all ranks at once."""
    look: Callable[[int], object] | None = None
    """Evaluates held-out samples after this many steps of all phases; called by all ranks at
    once."""
    report: Report


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
    verdict: QueuedVerdict
    learning_rate: float
    data_wait_s: float
    ended_s: float


def run_steps(setup: LoopSetup, start_step: int, watch: Watch = iter) -> LoopEnd:
    """Run the steps from `start_step` on, until the last one or a request to stop.

    Raises:
        StageError, StageConfigError: a loss or a gradient is not finite, or is missing.
    """
    recorder, loss, waited = setup.recorder, None, _waited(setup.ranks)
    copies, first = CopyAhead(setup.workplace.device), setup.first_step
    before: _Queued | None = None
    for number in watch(range(first + start_step, first + setup.num_steps)):
        step = number - first
        recorder.start_step(number)
        batches = next(setup.batches)
        recorder.lap("data_wait_s")
        counts, learned = setup.count(batches), _learned(batches)
        recorder.lap("other_s")
        num_learned = setup.ranks.sums(learned)
        recorder.lap(waited, part="rank_wait_data_s")  # for the rank with the latest batch

        share = _accumulate(setup, copies, batches, num_learned, is_first=step == start_step)
        norm = _clip(setup)
        recorder.lap("optimizer_s")
        verdict = judge(share, norm, setup.scaling.scale_on_device, setup.ranks)
        recorder.lap(waited)  # for the slowest rank
        if before is not None:
            # SYNC: once per step the host waits for the device, for the verdict of the previous
            # step; this step is queued by now. Not after the update: no update is queued after a
            # fault.
            loss = _conclude(setup, before, loss)
        learning_rate = _update(setup, step, verdict)
        recorder.lap("optimizer_s")

        agreed = setup.boundary.agree(step + 1)
        recorder.lap(waited)
        before = _Queued(
            step=step,
            batches=batches,
            counts=counts,
            verdict=verdict,
            learning_rate=learning_rate,
            data_wait_s=recorder.seconds_so_far("data_wait_s"),
            ended_s=time.monotonic(),
        )
        outcome = None
        if agreed.save or agreed.stop or _is_look_due(setup, step + 1):
            outcome = _read(setup, before)  # SYNC: the next actions need the weights anyway
            loss = _finite_or(outcome.loss, loss)
            if agreed.save:
                recorder.write_so_far(counts, outcome)  # records never lag behind a checkpoint
                saved_loss = outcome.loss if loss is None else loss
                setup.saver.save(step + 1, saved_loss, must_end=agreed.must_end)
                recorder.lap("checkpoint_s")
            _look(setup, agreed, step + 1)
            _report(setup, before, outcome, time.monotonic())
            before = None
        elif agreed.upload_ended:
            setup.saver.finish()
            recorder.lap("checkpoint_s")
        recorder.end_step(counts, outcome)
        if agreed.stop:
            return LoopEnd(num_steps_done=step + 1, stopped=True, final_loss=loss)
    return LoopEnd(num_steps_done=setup.num_steps, stopped=False, final_loss=loss)


def _waited(ranks: Ranks) -> str:
    """Return the step phase of a lap in which ranks synchronise; a single rank never waits."""
    return "rank_wait_s" if ranks.num_ranks > 1 else "other_s"


def _learned(batches: Sequence[Batch]) -> list[float]:
    """Return the number of targets of each level on this rank in the step."""
    here = zip(*(batch.learned.num_by_level for batch in batches), strict=True)
    return [float(sum(nums)) for nums in here]


def _shares(config: TrainConfig, num_learned: Sequence[float]) -> list[float]:
    """Return the weight of one target of each level in the loss of the step.

    The loss is the sum over levels of weight times mean, over the targets of all ranks.
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
    """Run forward and backward of each microbatch; return this rank's loss, on the device.

    `num_learned` is the number of targets of each level on all ranks.

    SYNC: within the passes models read a few values from the device.
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
            copies.begin(following[0])  # in parallel with later work
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
    """Return the weighted sum of the losses; weights stay on the host: no copy to the device."""
    if len(weights) == 1:
        return (losses * weights[0]).sum()
    return torch.stack([loss * w for loss, w in zip(losses, weights, strict=True)]).sum()


def _clip(setup: LoopSetup) -> torch.Tensor:
    """Clip the gradients; return the norm of the whole model before clipping, on the device."""
    setup.scaling.unscale(setup.spread.optimizer)
    max_norm = setup.config.optimizer.grad_clip_norm
    norm = clip_gradients(setup.spread.bare.parameters(), max_norm)
    return norm.to(setup.workplace.device)  # with cpu_offload it is on the host


def _update(setup: LoopSetup, step: int, verdict: QueuedVerdict) -> float:
    """Update unless the verdict is bad, and reset; return the learning rate."""
    learning_rate = learning_rate_at(
        step,
        num_steps=setup.num_steps,
        peak=setup.config.optimizer.learning_rate,
        schedule=setup.config.schedule,
    )
    set_learning_rate(setup.spread.optimizer, learning_rate)
    setup.scaling.step(setup.spread.optimizer, verdict)
    setup.spread.optimizer.zero_grad()
    return learning_rate


def _conclude(setup: LoopSetup, queued: _Queued, loss: float | None) -> float | None:
    """Record and report the previous step; return its loss, or `loss` if that is not finite."""
    outcome = _read(setup, queued)
    setup.recorder.add_outcome(outcome)
    _report(setup, queued, outcome, queued.ended_s)
    setup.recorder.lap("other_s")
    return _finite_or(outcome.loss, loss)


def _finite_or(loss: float, other: float | None) -> float | None:
    return loss if math.isfinite(loss) else other


def _read(setup: LoopSetup, queued: _Queued) -> StepOutcome:
    """Return the outcome of a step; SYNC: waits for its verdict.

    Raises:
        StageError: the loss or a gradient is not finite, or under fp16 too often in a row.
    """
    verdict = queued.verdict.read()
    setup.recorder.lap("optimizer_s")
    if not (verdict.is_finite or setup.scaling.is_on):
        raise _not_finite(setup, queued, verdict)
    setup.scaling.count(is_skipped=not verdict.is_finite)
    if not verdict.is_finite:
        _note_skip(setup, queued, verdict)
    return StepOutcome(
        loss=verdict.loss,
        learning_rate=queued.learning_rate,
        # For a skipped step it is infinite on every rank, wherever the overflow occurred.
        grad_norm=verdict.grad_norm if verdict.is_finite else math.inf,
    )


def _note_skip(setup: LoopSetup, queued: _Queued, verdict: Verdict) -> None:
    """Log that the device skipped a step because of an overflow under fp16.

    Raises:
        StageError: there have been too many in a row.
    """
    num_skips = setup.scaling.num_skips_in_a_row
    if num_skips >= setup.config.scaler.max_skips:
        message = (
            f"the loss or the gradients of {num_skips} steps in a row overflowed under fp16, last "
            f"in step {queued.step}, with the loss scaled by {verdict.scale:g}; samples of this "
            f"rank: {_keys(queued.batches)}. Check these samples, lower optimizer.learning_rate or "
            "scaler.init_scale, or set `precision: fp32`"
        )
        raise StageError(message)
    if setup.ranks.rank == 0:
        log.warning(
            "step %d is skipped on all ranks: the loss or a gradient overflowed under fp16, with "
            "the loss scaled by %g (%d in a row)",
            queued.step, verdict.scale, num_skips,
        )  # fmt: skip


def _report(setup: LoopSetup, queued: _Queued, outcome: StepOutcome, ended_s: float) -> None:
    num_steps_done = setup.first_step + queued.step + 1
    setup.report(num_steps_done, outcome, queued.counts, queued.data_wait_s, ended_s)


def _keys(batches: Sequence[Batch]) -> str:
    return ", ".join(key for batch in batches for key in batch.keys)


def _is_look_due(setup: LoopSetup, num_steps_done: int) -> bool:
    if setup.look is None:
        return False
    number, ends_phase = setup.first_step + num_steps_done, num_steps_done == setup.num_steps
    return setup.config.evaluate.is_look_due(number, ends_phase=ends_phase)


def _look(setup: LoopSetup, agreed: Agreement, num_steps_done: int) -> None:
    """Evaluate held-out samples if due; at a stop the next attempt does it first."""
    if setup.look is not None and not agreed.stop and _is_look_due(setup, num_steps_done):
        setup.look(setup.first_step + num_steps_done)
        setup.recorder.lap("evaluation_s")


def _not_finite(setup: LoopSetup, queued: _Queued, verdict: Verdict) -> StageError:
    is_halved = setup.workplace.precision != "fp32"
    other = ", lower optimizer.learning_rate, or set `precision: fp32`"
    remedy = other if is_halved else ", or lower optimizer.learning_rate"
    here = "finite" if math.isfinite(verdict.local_loss) else str(verdict.local_loss)
    return StageError(
        f"the loss of step {queued.step} is {verdict.loss} (this rank's share is {here}), its "
        f"gradient norm {verdict.grad_norm}; samples of this rank: {_keys(queued.batches)}. "
        f"Nothing of this step was applied or saved: check these samples{remedy}"
    )
