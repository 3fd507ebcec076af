"""Reports of a running training: a progress file, trackers, and occasional log lines."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.timing.recorder import StepCounts, StepOutcome
from pipeline.train.reporting.trackers import Trackers
from pipeline.train.reporting.training_speed import Rates, WorkDone, rates_between, time_left
from slurm_jobs.formats.records.progress_file import Progress

log = logging.getLogger(__name__)

_NUM_RECENT = 10
"""Number of progress points over which rates are averaged, to smooth them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingFacts:
    """Facts about the training for a reporter."""

    num_steps: int
    num_ranks: int
    log_every_steps: int
    peak_flops_per_s: float | None
    """Peak of rank 0's card; None: no MFU."""
    manifests: Sequence[str] = ()
    """Names for `StepOutcome.by_manifest`."""


class TrainingReporter:
    """Called for every step on every rank, when its outcome is known; rank 0 writes."""

    def __init__(self, progress: Progress | None, trackers: Trackers, facts: TrainingFacts) -> None:
        """`progress` is None on all ranks but 0."""
        self._progress = progress
        self._trackers = trackers
        self._facts = facts
        self._outside_s = time.monotonic()
        """Time of the clock outside of any loop."""
        self._done = WorkDone(at_s=0.0, num_steps=0, num_tokens=0, data_wait_s=0.0, model_flops=0.0)
        self._line = self._tracked = self._done
        self._recent = deque([self._done], maxlen=_NUM_RECENT)

    def start_clock(self) -> float | None:
        """Start the clock at the begin of a phase's loop: rates exclude the time before.

        Returns: seconds since the last step of the phase before; None if this attempt made
        none.
        """
        outside_s = time.monotonic() - self._done.at_s
        since_s = outside_s - self._outside_s
        self._outside_s = outside_s
        return since_s if self._done.num_steps else None

    def __call__(
        self,
        num_steps_done: int,
        outcome: StepOutcome,
        counts: StepCounts,
        data_wait_s: float,
        ended_s: float,
    ) -> None:
        """Record a step.

        `num_steps_done` are of all phases and attempts. The step ended here at `ended_s`, by
        `time.monotonic`: its outcome is known later.
        """
        before = self._done
        self._done = WorkDone(
            at_s=ended_s - self._outside_s,
            num_steps=before.num_steps + 1,
            num_tokens=before.num_tokens + counts.num_tokens,
            data_wait_s=before.data_wait_s + data_wait_s,
            model_flops=before.model_flops + counts.model_flops,
        )
        if self._progress is None:
            return
        facts = self._facts
        if self._progress.is_due(num_steps_done):
            rates = self._since(self._recent[0])
            self._recent.append(self._done)
            self._progress.update(num_steps_done, detail=self._text(num_steps_done, outcome, rates))
        if self._trackers.are_due(num_steps_done):
            rates, self._tracked = self._since(self._tracked), self._done
            values = tracked_values(outcome, rates, facts.manifests)
            self._trackers.log(values, num_steps_done)
        if num_steps_done % facts.log_every_steps == 0 or num_steps_done == facts.num_steps:
            rates, self._line = self._since(self._line), self._done
            text = self._text(num_steps_done, outcome, rates)
            log.info("step %d/%d: %s", num_steps_done, facts.num_steps, text)

    def track(self, num_steps_done: int, values: Mapping[str, float]) -> None:
        """Send the results of a held-out evaluation to the trackers, by name: `look/loss`."""
        self._trackers.log(values, num_steps_done)

    def _text(self, num_steps_done: int, outcome: StepOutcome, rates: Rates) -> str:
        left = self._facts.num_steps - num_steps_done
        parts = [
            f"loss {outcome.loss:.4f}",
            f"{rates.tokens_per_s:,.0f} tokens/s",
            f"{100 * rates.data_wait_share:.0f} % waiting for data",
            "" if rates.mfu is None else f"MFU {100 * rates.mfu:.1f} %",
            f"{time_left(left * rates.step_s)} left" if left else "",
        ]
        return ", ".join(part for part in parts if part)

    def _since(self, first: WorkDone) -> Rates:
        return rates_between(
            first,
            self._done,
            num_ranks=self._facts.num_ranks,
            peak_flops_per_s=self._facts.peak_flops_per_s,
        )

    @property
    def num_tokens(self) -> int:
        """Tokens of this rank, without padding."""
        return self._done.num_tokens

    @property
    def elapsed_s(self) -> float:
        """Time of the loops of all phases, up to the newest step."""
        return self._done.at_s


def tracked_values(
    outcome: StepOutcome, rates: Rates, manifests: Sequence[str] = ()
) -> dict[str, float]:
    """Return the values of a step for trackers, by name; without those that are not finite.

    Rates are over all steps since the trackers' last update.
    """
    # A step whose data set was not mixed has no losses by manifest.
    by_manifest = zip(manifests, outcome.by_manifest, strict=False)
    values = {
        "loss": outcome.loss,
        **{f"loss/{name}": loss.mean for name, loss in by_manifest},
        "learning_rate": outcome.learning_rate,
        "grad_norm": outcome.grad_norm,
        "tokens_per_s": rates.tokens_per_s,
        "step_s": rates.step_s,
        "data_wait_share": rates.data_wait_share,
        "mfu": math.nan if rates.mfu is None else rates.mfu,
    }
    return {name: value for name, value in values.items() if math.isfinite(value)}
