"""What is still to come of a training, as ranges: PURE.

Time is that of further steps, of the starts that the time limit makes necessary, and of the queue
before each, as this run has waited so far. Nothing is projected from fewer steps than tell the
pace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_jobs.report import words
from slurm_jobs.report.inputs.records import StageInputs
from slurm_jobs.report.model.cost import Projection, Span
from slurm_jobs.report.model.run import Bar, StageNumbers
from slurm_jobs.report.model.training import Pace, TrainingNumbers
from slurm_jobs.report.numbers.cost import money_of
from slurm_jobs.report.numbers.pace import time_of

TO_THE_END = "to the end"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Course:
    """What surrounds the steps of a stage."""

    startup_s: float
    """Of a start, before its first step and after its last."""
    limit_s: float | None
    wait: Span | None
    running_since_s: float | None
    """How long its newest start has run; None where none runs."""
    num_gpus: int
    num_cpus: int


def projections(
    inputs: Mapping[str, StageInputs],
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    bars: Sequence[Bar],
    price: Mapping[str, object] | None,
) -> tuple[Projection, ...]:
    """To the end of each training that is not done and whose pace is known."""
    found = []
    for numbers in training:
        pace, stage = numbers.pace, _of(stages, numbers.stage)
        if pace is None or pace.num_planned is None or stage is None or numbers.is_earlier:
            continue
        left = pace.num_planned - numbers.num_steps
        if left > 0 and stage.status != "completed":
            course = _course(inputs[stage.name], stage, numbers, bars)
            found.append(_project(numbers, pace, course, left, price, what=TO_THE_END))
    return tuple(found)


def project_epochs(
    inputs: Mapping[str, StageInputs],
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    price: Mapping[str, object] | None,
    *,
    num_epochs: float,
    num_samples: float,
) -> tuple[Projection, ...]:
    """So many epochs over `num_samples`, begun anew with the settings that each training has."""
    found = []
    for numbers in training:
        pace, stage = numbers.pace, _of(stages, numbers.stage)
        if pace is None or stage is None or numbers.is_earlier:
            continue
        num_steps = math.ceil(num_epochs * num_samples / pace.samples_per_step)
        course = replace(_course(inputs[stage.name], stage, numbers, ()), running_since_s=None)
        what = words.number_of("epoch", 1) if num_epochs == 1 else f"{num_epochs:g} epochs"
        found.append(_project(numbers, pace, course, num_steps, price, what=what))
    return tuple(found)


def _of(stages: Sequence[StageNumbers], name: str) -> StageNumbers | None:
    """None for one element of an array of trainings: its accounting is that of all of them."""
    return next((stage for stage in stages if stage.name == name), None)


def _course(
    inputs: StageInputs, stage: StageNumbers, numbers: TrainingNumbers, bars: Sequence[Bar]
) -> _Course:
    around_s = sum(s.seconds for s in numbers.budget if s.kind in {"startup", "unexplained"})
    median, longest = stage.queue_wait_median_s.value, stage.queue_wait_max_s.value
    running = [b for b in bars if b.stage == stage.name and b.outcome == "running"]
    asked = {name: int(inputs.resources.get(name) or 0) for name in _COUNTED}
    num_tasks = max(1, asked["nodes"]) * max(1, asked["tasks_per_node"])
    return _Course(
        startup_s=around_s / numbers.num_attempts,
        limit_s=stage.time_limit_s.value,
        wait=None if median is None or longest is None else Span(low=median, high=longest),
        running_since_s=max((b.end_unix_s - b.start_unix_s for b in running), default=None),
        num_gpus=max(1, asked["nodes"]) * asked["gpus_per_node"],
        num_cpus=num_tasks * max(1, asked["cpus_per_task"]),
    )


_COUNTED = ("nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node")


def _project(
    numbers: TrainingNumbers,
    pace: Pace,
    course: _Course,
    num_steps: int,
    price: Mapping[str, object] | None,
    *,
    what: str,
) -> Projection:
    low_s, high_s = time_of(pace, num_steps)
    starts = [_num_starts(course, work_s) for work_s in (low_s, high_s)]
    held = Span(
        low=low_s + starts[0] * course.startup_s, high=high_s + starts[1] * course.startup_s
    )
    wait = course.wait
    if wait is not None:
        wait = Span(low=starts[0] * wait.low, high=starts[1] * wait.high)
    hours = [course.num_gpus * s / 3600 for s in (held.low, held.high)]
    cpu_hours = [course.num_cpus * s / 3600 for s in (held.low, held.high)]
    money = [money_of(g, c, price) for g, c in zip(hours, cpu_hours, strict=True)]
    low_wait, high_wait = (wait.low, wait.high) if wait is not None else (0.0, 0.0)
    return Projection(
        stage=numbers.stage,
        what=what,
        num_steps=num_steps,
        seconds=Span(low=held.low + low_wait, high=held.high + high_wait),
        num_starts=starts[1],
        wait=wait,
        gpu_hours=Span(low=hours[0], high=hours[1]) if course.num_gpus else None,
        money=None if money[0] is None or money[1] is None else Span(low=money[0], high=money[1]),
        basis=_basis(pace, course, starts[1]),
    )


def _num_starts(course: _Course, work_s: float) -> int:
    """Further starts of the job; the one that runs counts as none."""
    is_running = course.running_since_s is not None
    if course.limit_s is None:
        return 0 if is_running else 1
    usable_s = course.limit_s - course.startup_s
    left_s = max(0.0, course.limit_s - course.running_since_s) if is_running else 0.0  # type: ignore[operator]
    if usable_s <= 0:
        return 0 if work_s <= left_s else 1
    return math.ceil(max(0.0, work_s - left_s) / usable_s)


def _basis(pace: Pace, course: _Course, num_starts: int) -> str:
    steps, ranks = words.number_of("step", pace.num_steps), words.ranks([pace.num_ranks])
    parts = [f"{words.seconds(pace.step_s)} a step, over {steps} on {ranks}"]
    if num_starts:
        each = f"each with {words.seconds(course.startup_s)} around its steps"
        parts.append(f"{words.number_of('further start', num_starts)} at most, {each}")
        parts.append(
            "the queue's waits as this run had them"
            if course.wait is not None
            else "no wait in the queue is known, and none is in it"
        )
    return "; ".join(parts)
