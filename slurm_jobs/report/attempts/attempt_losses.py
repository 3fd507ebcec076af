"""Time that the ends of attempts have cost: start-ups again, repeated work, waits. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.attempt_model import StageLoss
from slurm_jobs.run.attempt_history import AttemptEntry


def stage_loss(entries: Sequence[AttemptEntry], now_unix_s: float) -> StageLoss:
    """Return the lost time of these attempts; running ones count until now."""
    wait_s = sum(entry.requeue_wait_s or 0.0 for entry in entries)
    ran_s = sum(ran_for_s(entry, now_unix_s) or 0.0 for entry in entries)
    return StageLoss(
        startup_again_s=sum(entry.startup_again_s or 0.0 for entry in entries),
        repeated_s=sum(entry.repeated_s or 0.0 for entry in entries),
        requeue_wait_s=wait_s,
        whole_s=ran_s + wait_s,
    )


def ran_for_s(entry: AttemptEntry, now_unix_s: float) -> float | None:
    """Return the length of an attempt, of a running one so far; None if its end is unknown."""
    end = now_unix_s if entry.ending == "running" else entry.end_unix_s
    return None if end is None else max(0.0, end - entry.start_unix_s)


def loss_text(lost: StageLoss) -> str:
    """Return `12 s of 40 s (30 %): start-up again 9 s, requeue wait 3 s`."""
    parts = ", ".join(f"{name} {units.seconds(seconds)}" for name, seconds in lost.parts)
    whole = f"{units.seconds(lost.seconds)} of {units.seconds(lost.whole_s)}"
    return f"{whole} ({units.percent(lost.share)})" + (f": {parts}" if parts else "")


def with_steps(
    entries: Sequence[AttemptEntry], steps: Sequence[AttemptSteps]
) -> tuple[AttemptEntry, ...]:
    """Return the attempts at one slice with their steps, if any of them recorded some.

    An attempt without a step that did not complete has lost all of its time. The start-up of the
    first attempt with steps is not lost.
    """
    if not steps:
        return tuple(entries)
    by_attempt = {attempt.attempt: attempt for attempt in steps}
    first = min(by_attempt)
    return tuple(_with_own_steps(entry, by_attempt.get(entry.attempt), first) for entry in entries)


def _with_own_steps(entry: AttemptEntry, steps: AttemptSteps | None, first: int) -> AttemptEntry:
    """Return the attempt with its steps; `first` is the first attempt that made some."""
    end_s = entry.end_unix_s
    is_lost = entry.ending not in {"running", "completed", "superseded"} and end_s is not None
    if steps is None:
        ran_s = ran_for_s(entry, entry.start_unix_s) if is_lost else None
        return replace(entry, num_steps=0, repeated_s=ran_s)
    lost_s = steps.uncounted_s
    if is_lost and end_s is not None and not entry.has_stopped:  # it hung, or its step was cut off
        lost_s += max(0.0, end_s - steps.ended_unix_s)
    startup_s = max(0.0, steps.begun_unix_s - entry.start_unix_s)
    return replace(
        entry,
        num_steps=len(steps.records[steps.longest]),
        startup_again_s=0.0 if entry.attempt == first else startup_s,
        repeated_s=lost_s,
    )
