"""Cost and projection in words. PURE."""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.model.cost import CostNumbers, Projection, Span


def taken(cost: CostNumbers) -> str:
    """Return `12.3 GPU h, 45.6 CPU h, 78.9 EUR`; empty if nothing is known."""
    numbers = (cost.gpu_hours, cost.cpu_hours, cost.money)
    shown = [words.quantity(number) for number in numbers if number.value]
    return ", ".join(shown)


def parts(cost: CostNumbers) -> list[str]:
    """Return each training's use of GPU-hours: `train: training steps 10.1 GPU h (82 %)`."""
    lines = []
    for stage in cost.stages:
        largest = sorted(stage.parts, key=lambda part: -part.gpu_hours)
        listed = ", ".join(
            f"{part.name} {words.significant(part.gpu_hours)} GPU h ({words.percent(part.share)})"
            for part in largest
            if part.share >= 0.0005
        )
        if listed:
            lines.append(f"{stage.stage}: {listed}")
    return lines


def ahead(projection: Projection, currency: str) -> str:
    """Return `train, to the end: 2 h 05 min to 2 h 31 min for 1,200 steps, 8.1 to 9.9 GPU h`."""
    steps = words.number_of("step", projection.num_steps)
    times = _times(projection.seconds)
    found = [f"{projection.stage}, {projection.what}: {times} for {steps}"]
    if projection.gpu_hours is not None:
        found.append(f"{_numbers(projection.gpu_hours)} GPU h")
    if projection.money is not None:
        found.append(f"{_numbers(projection.money)} {currency}")
    return f"{', '.join(found)} ({projection.basis})"


def _times(span: Span) -> str:
    low, high = words.seconds(span.low), words.seconds(span.high)
    return low if low == high else f"{low} to {high}"


def _numbers(span: Span) -> str:
    low, high = words.significant(span.low), words.significant(span.high)
    return low if low == high else f"{low} to {high}"
