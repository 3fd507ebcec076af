"""Cost and projection in words, for terminal and page. PURE."""

from __future__ import annotations

from collections.abc import Callable

from slurm_jobs.base import units
from slurm_jobs.report.values.cost_model import CostNumbers, Projection, Span


def taken(cost: CostNumbers) -> str:
    """Return `12.3 GPU h, 45.6 CPU h, 78.9 EUR`; empty if nothing is known."""
    numbers = (cost.gpu_hours, cost.cpu_hours, cost.money)
    shown = [units.quantity(number) for number in numbers if number.value]
    return ", ".join(shown)


def parts(cost: CostNumbers) -> list[str]:
    """Return each training's use of GPU-hours: `train: training steps 10.1 GPU h (82 %)`."""
    lines = []
    for stage in cost.stages:
        largest = sorted(stage.parts, key=lambda part: -part.gpu_hours)
        listed = ", ".join(
            f"{part.name} {units.significant(part.gpu_hours)} GPU h ({units.percent(part.share)})"
            for part in largest
            if part.share >= 0.0005
        )
        if listed:
            lines.append(f"{stage.stage}: {listed}")
    return lines


def ahead(projection: Projection, currency: str) -> str:
    """Return `train, to the end: 2 h 05 min to 2 h 31 min for 1,200 steps, 8.1 to 9.9 GPU h`."""
    steps = units.number_of("step", projection.num_steps)
    times = _span_text(projection.seconds, units.seconds)
    text = f"{projection.stage}, {projection.what}: {times} for {steps}"
    if projection.gpu_hours is not None:
        text += f", {_span_text(projection.gpu_hours, units.significant)} GPU h"
    if projection.money is not None:
        text += f", {_span_text(projection.money, units.significant)} {currency}"
    return f"{text} ({projection.basis})"


def _span_text(span: Span, text_of: Callable[[float], str]) -> str:
    low, high = text_of(span.low), text_of(span.high)
    return low if low == high else f"{low} to {high}"
