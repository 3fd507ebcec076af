"""Speed of a training between two points in time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkDone:
    """Work of rank 0 in this attempt up to a point in time."""

    at_s: float
    """Time of a clock that runs only during the steps."""
    num_steps: int
    num_tokens: int
    """Without padding."""
    data_wait_s: float
    model_flops: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Rates between two points in time, with all pauses in between."""

    step_s: float
    tokens_per_s: float
    """For all ranks, from rank 0's tokens: ranks have equal work."""
    data_wait_share: float
    """Share of rank 0's time."""
    mfu: float | None
    """For rank 0's card; None if its peak is unknown. Pauses count, while step records leave out
    the step phases that do not train (`NOT_TRAINING`)."""


def rates_between(
    first: WorkDone, last: WorkDone, *, num_ranks: int, peak_flops_per_s: float | None
) -> Rates:
    """Return the rates; at least one step is between the two."""
    seconds = max(1e-9, last.at_s - first.at_s)
    flops_per_s = (last.model_flops - first.model_flops) / seconds
    return Rates(
        step_s=seconds / (last.num_steps - first.num_steps),
        tokens_per_s=(last.num_tokens - first.num_tokens) * num_ranks / seconds,
        data_wait_share=min(1.0, (last.data_wait_s - first.data_wait_s) / seconds),
        mfu=None if peak_flops_per_s is None else flops_per_s / peak_flops_per_s,
    )


def time_left(seconds: float) -> str:
    """Format a duration: `45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24} h"
