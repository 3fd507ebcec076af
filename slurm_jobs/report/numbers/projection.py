"""Projections of the rest of a training, as ranges. PURE.

They include further steps, the starts that the time limit makes necessary, and the queue before
each, as this run has waited so far. Too few steps for a pace give no projection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from slurm_jobs.base import units
from slurm_jobs.formats.records.job_resources import gpus_of_options
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.numbers.cost_numbers import money_of
from slurm_jobs.report.numbers.step_stretches import MIN_BLOCK_STEPS
from slurm_jobs.report.steps.step_pace import time_of
from slurm_jobs.report.values.cost_model import Projection, Span
from slurm_jobs.report.values.stage_model import Bar, StageNumbers
from slurm_jobs.report.values.training_model import StepPace, TrainingNumbers

TO_THE_END = "to the end"
_NONE_BEGUN: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Overhead:
    """Time around the steps of a stage."""

    startup_s: float
    """Time of a start: before its first step, after its last, and extra time of its first steps."""
    limit_s: float | None
    wait: Span | None
    running_since_s: float | None
    """Age of its newest start; None if none runs."""
    num_gpus: int
    num_cpus: int

    @property
    def is_hopeless(self) -> bool:
        """True if no start reaches a step."""
        return self.limit_s is not None and self.limit_s <= self.startup_s


def projections(
    inputs: Mapping[str, StageInputs],
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    bars: Sequence[Bar],
    price: Mapping[str, object] | None,
    *,
    begun: Mapping[str, float] = _NONE_BEGUN,
) -> tuple[tuple[Projection, ...], tuple[str, ...]]:
    """Return projections to the end of unfinished trainings, and reasons for missing ones.

    `begun` has by job id when the scheduler began the start that runs; its time limit counts from
    then, regardless of retries in place.
    """
    projected, notes = [], []
    for numbers in training:
        stage = _stage_named(stages, numbers.stage)
        if stage is None or stage.status == "completed" or numbers.is_earlier:
            continue
        pace, why = numbers.pace, _why_rest_unknown(numbers)
        overhead = _overhead(inputs[stage.name], stage, numbers, bars, begun)
        if why or pace is None or pace.num_planned is None:
            notes.append(f"{numbers.stage}: what is ahead is not known: {why}")
        elif overhead.is_hopeless:
            notes.append(f"{numbers.stage}: {_HOPELESS.format(units.seconds(overhead.startup_s))}")
        else:
            left = pace.num_planned - _num_done(numbers, pace, bars)
            if left > 0:
                projected.append(_project(numbers, pace, overhead, left, price, what=TO_THE_END))
    return tuple(projected), tuple(notes)


_HOPELESS = (
    "its time limit leaves no time for steps after a start-up of {}: raise timeout_min, or nothing "
    "more will be done"
)


def _why_rest_unknown(numbers: TrainingNumbers) -> str:
    """Return why the rest of a training is not projected; empty if its pace and end are known."""
    pace = numbers.pace
    if pace is None:
        return _NO_PACE
    if pace.num_planned is None:
        return "its records do not say how many steps it is to have"
    if not pace.is_last_phase:
        return "phases are ahead whose pace is not known yet"
    return ""


_NO_PACE = f"fewer than {MIN_BLOCK_STEPS} steps of its newest config and phase show its pace"


def _num_done(numbers: TrainingNumbers, pace: StepPace, bars: Sequence[Bar]) -> int:
    """Return the steps that need not be repeated.

    These are all steps of the last attempt with steps, unless it failed and so left only those that
    it had saved. A later attempt has not repeated the others while it has no steps, but it may have
    recorded from which step it continues. Then these are the steps before that.
    """
    of_stage = [bar for bar in bars if bar.stage == numbers.stage]
    with_steps = [bar for bar in of_stage if bar.attempt == pace.attempt]
    last = max(with_steps or of_stage, key=lambda bar: bar.start_unix_s, default=None)
    has_lost_steps = last is not None and last.outcome in {"failed", "cancelled", "unknown"}
    if not has_lost_steps:
        return pace.num_done
    if pace.num_loaded is not None:
        return min(pace.num_done, pace.num_loaded)
    return min(pace.num_done, pace.num_saved)


def project_epochs(
    inputs: Mapping[str, StageInputs],
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    price: Mapping[str, object] | None,
    *,
    num_epochs: float,
    num_samples: Mapping[str, float],
) -> tuple[tuple[Projection, ...], tuple[str, ...]]:
    """Return projections of so many epochs from the start with the current settings, and reasons.

    Args:
        inputs: inputs of the stages, by name.
        stages: stages of the spec.
        training: trainings that recorded steps.
        price: prices of the cluster profile.
        num_epochs: above 0.
        num_samples: samples of each stage that made data, by name.
    """
    projected, notes = [], []
    for numbers in training:
        stage = _stage_named(stages, numbers.stage)
        if stage is None or numbers.is_earlier:
            continue
        sources = [name for name in ancestors_of(inputs, stage.name) if name in num_samples]
        overhead = replace(_overhead(inputs[stage.name], stage, numbers, ()), running_since_s=None)
        pace, why = numbers.pace, _why_no_epochs(numbers, len(sources), overhead)
        if why or pace is None:
            notes.append(f"{numbers.stage}: {num_epochs:g} epochs are not projected: {why}")
            continue
        num_steps = math.ceil(num_epochs * num_samples[sources[0]] / pace.samples_per_step)
        what = units.number_of("epoch", 1) if num_epochs == 1 else f"{num_epochs:g} epochs"
        projected.append(_project(numbers, pace, overhead, num_steps, price, what=what))
    if not projected and not notes:
        notes.append(f"{num_epochs:g} epochs are not projected: no training has recorded steps")
    return tuple(projected), tuple(notes)


def _why_no_epochs(numbers: TrainingNumbers, num_sources: int, overhead: _Overhead) -> str:
    """Return why there is no projection; empty if pace and length of an epoch are known."""
    pace = numbers.pace
    if pace is None:
        return _NO_PACE
    if num_sources != 1:
        reason = (
            "several stages made data before it" if num_sources else "the run did not make its data"
        )
        return f"{reason}, so that an epoch has no known length"
    if pace.num_phases > 1:
        return "it has phases, each with a pace of its own"
    if not pace.samples_per_step:
        return "its records count no samples"
    return _HOPELESS.format(units.seconds(overhead.startup_s)) if overhead.is_hopeless else ""


def ancestors_of(inputs: Mapping[str, StageInputs], name: str) -> list[str]:
    """Return all stages before this one, direct or indirect."""
    names: list[str] = []
    waiting = list(inputs[name].after)
    while waiting:
        parent = waiting.pop()
        if parent in inputs and parent not in names:
            names.append(parent)
            waiting.extend(inputs[parent].after)
    return sorted(names)


def _stage_named(stages: Sequence[StageNumbers], name: str) -> StageNumbers | None:
    """Return the stage of that name.

    None for the numbers of an array's element, whose name has the slice too: the accounting of the
    stage is that of all its elements.
    """
    return next((stage for stage in stages if stage.name == name), None)


def _overhead(
    inputs: StageInputs,
    stage: StageNumbers,
    numbers: TrainingNumbers,
    bars: Sequence[Bar],
    begun: Mapping[str, float] = _NONE_BEGUN,
) -> _Overhead:
    median, longest = stage.queue_wait_median_s.value, stage.queue_wait_max_s.value
    ages_s = []
    for bar in bars:
        if bar.stage == stage.name and bar.outcome == "running":
            begun_unix_s = min(bar.start_unix_s, begun.get(bar.job_id, bar.start_unix_s))
            now_unix_s = bar.end_unix_s  # a bar that has not ended reaches to now
            ages_s.append(now_unix_s - begun_unix_s)
    requested = {name: int(inputs.resources.get(name) or 0) for name in _COUNTED}
    options = inputs.resources.get("slurm") or {}
    num_gpus = requested["gpus_per_node"] or gpus_of_options(
        options, max(1, requested["tasks_per_node"])
    )
    num_tasks = max(1, requested["nodes"]) * max(1, requested["tasks_per_node"])
    limit_s = stage.time_limit_s.value
    if not limit_s and (minutes := inputs.resources.get("timeout_min")):  # without accounting
        limit_s = float(minutes) * 60
    return _Overhead(
        startup_s=numbers.start_s + (numbers.pace.warmup_s if numbers.pace else 0.0),
        limit_s=limit_s or None,
        wait=None if median is None or longest is None else Span(low=median, high=longest),
        running_since_s=max(ages_s, default=None),
        num_gpus=max(1, requested["nodes"]) * num_gpus,
        num_cpus=num_tasks * max(1, requested["cpus_per_task"]),
    )


_COUNTED = ("nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node")


def _project(
    numbers: TrainingNumbers,
    pace: StepPace,
    overhead: _Overhead,
    num_steps: int,
    price: Mapping[str, object] | None,
    *,
    what: str,
) -> Projection:
    low_work_s, high_work_s = time_of(pace, num_steps)
    low_starts, high_starts = _num_starts(overhead, low_work_s), _num_starts(overhead, high_work_s)
    held_s = Span(
        low=low_work_s + low_starts * overhead.startup_s,
        high=high_work_s + high_starts * overhead.startup_s,
    )
    gpu_hours = _hours(overhead.num_gpus, held_s)
    cpu_hours = _hours(overhead.num_cpus, held_s)
    low_money = money_of(gpu_hours.low, cpu_hours.low, price)
    high_money = money_of(gpu_hours.high, cpu_hours.high, price)
    money = None
    if low_money is not None and high_money is not None:
        money = Span(low=low_money, high=high_money)
    wait, seconds = None, held_s
    if overhead.wait is not None:
        wait = Span(low=low_starts * overhead.wait.low, high=high_starts * overhead.wait.high)
        seconds = Span(low=held_s.low + wait.low, high=held_s.high + wait.high)
    steps, ranks = units.number_of("step", pace.num_steps), units.ranks([pace.num_ranks])
    basis = f"at {units.seconds(pace.step_s)} a step, as in {steps} on {ranks}"
    if high_starts:
        start = "start" if overhead.running_since_s is None else "further start"
        waits = "without waits in the queue, of which none is known"
        if wait is not None:
            waits = "and waits in the queue as this run had them"
        basis += (
            f"; with {units.number_of(start, high_starts)} of the job at most, each with "
            f"{units.seconds(overhead.startup_s)} of start-up, warm-up and end; {waits}"
        )
    return Projection(
        stage=numbers.stage,
        what=what,
        num_steps=num_steps,
        seconds=seconds,
        num_starts=high_starts,
        wait=wait,
        gpu_hours=gpu_hours if overhead.num_gpus else None,
        money=money,
        basis=basis,
    )


def _hours(num_devices: int, held_s: Span) -> Span:
    return Span(low=num_devices * held_s.low / 3600, high=num_devices * held_s.high / 3600)


def _num_starts(overhead: _Overhead, work_s: float) -> int:
    """Return the number of further starts of the job; the running one does not count."""
    running_s, limit_s = overhead.running_since_s, overhead.limit_s
    if limit_s is None:
        return 1 if running_s is None else 0
    usable_s = max(1.0, limit_s - overhead.startup_s)
    left_s = 0.0 if running_s is None else max(0.0, limit_s - running_s)
    return math.ceil(max(0.0, work_s - left_s) / usable_s)
