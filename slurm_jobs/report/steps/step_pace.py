"""Time of a training step from start to start, and its uncertainty. PURE."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from slurm_jobs.base.student_t import two_sided
from slurm_jobs.report.comparison.speed_verdict import CONFIDENCE
from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.numbers.step_stretches import stretch_speeds
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.steps.newest_steps import of_newest, phase_of
from slurm_jobs.report.values.training_model import StepPace


def find_pace(
    attempts: Sequence[AttemptSteps], timings: Sequence[RankTiming] = ()
) -> StepPace | None:
    """Return the pace of the newest phase and config, on as many ranks as the last attempt.

    None if fewer than `statistics.MIN_BLOCK_STEPS` steps of that phase and config were measured.
    Checkpoints and evaluation in the loop are included, because they will recur.

    Args:
        attempts: attempts of one slice, oldest first.
        timings: timings of the slice, including starts without a step.
    """
    newest = attempts[-1]
    phase = phase_of(newest)
    complete = [
        a
        for a in of_newest(attempts)
        if a.num_ranks == newest.num_ranks and a.is_whole and a.num_measured
    ]
    lengths, num_samples = [np.empty(0)], 0.0
    for attempt in complete:
        ranks = [attempt.measured(index) for index in range(len(attempt.ranks))]
        in_phase = ranks[attempt.longest]["step"] >= phase.first_step
        lengths.append(ranks[attempt.longest]["step_s"][in_phase])
        num_samples += sum(
            float(rank["num_samples"][in_phase].sum(dtype=np.float64)) for rank in ranks
        )
    seconds = np.concatenate(lengths)
    speeds = stretch_speeds(np.ones(len(seconds)), seconds.astype(np.float64))
    if not speeds:
        return None
    times = [1 / speed for speed in speeds]
    num_planned = newest.ranks[0].header.get("num_steps")
    steps = newest.kept(newest.longest)
    saved = steps["step"][steps["checkpoint_s"] > 0]
    loaded_steps = [
        span["step"]
        for timing in sorted(timings, key=lambda timing: timing.attempt)
        for span in timing.spans
        if timing.attempt > newest.attempt
        and span["name"] == "checkpoint_load"
        and isinstance(span.get("step"), int)
    ]
    num_saved = int(steps["step"][0]) if len(steps) else 0
    return StepPace(
        num_ranks=newest.num_ranks,
        step_s=statistics.mean(times),
        spread_s=statistics.stdev(times),
        num_steps=len(seconds),
        num_stretches=len(times),
        samples_per_step=num_samples / len(seconds),
        num_planned=int(num_planned) if num_planned else None,
        num_done=int(newest.records[newest.longest]["step"][-1]) + 1,
        num_saved=int(saved[-1]) + 1 if len(saved) else num_saved,
        num_phases=phase.num_phases,
        is_last_phase=phase.is_last,
        attempt=newest.attempt,
        warmup_s=_warmup_s(complete, phase.first_step, statistics.mean(times)),
        num_loaded=int(loaded_steps[-1]) if loaded_steps and phase.num_phases == 1 else None,
    )


def _warmup_s(attempts: Sequence[AttemptSteps], first_step: int, step_s: float) -> float:
    """Return the extra time of warm-up steps.

    For an attempt that began in an earlier phase, whose pace differs, it is only compilation.
    """
    extra = []
    for attempt in attempts:
        records = attempt.records[attempt.longest]
        steps = records[: attempt.warmup_steps]
        whole_s = float(steps["step_s"].sum(dtype=np.float64)) - len(steps) * step_s
        if records["step"][0] < first_step:
            whole_s = float(steps["compile_s"].sum(dtype=np.float64))
        extra.append(max(0.0, whole_s))
    return statistics.median(extra)


def time_of(pace: StepPace, num_steps: int) -> tuple[float, float]:
    """Return the range of seconds that so many further steps take, at 95 %.

    It is a prediction interval: the means of future and past stretches differ by the uncertainty of
    both. Events that did not occur in the past are not included.
    """
    ahead = max(1.0, num_steps * pace.num_stretches / pace.num_steps)
    half = (
        two_sided(CONFIDENCE, pace.num_stretches - 1)
        * pace.spread_s
        * math.sqrt(1 / pace.num_stretches + 1 / ahead)
    )
    return num_steps * max(0.0, pace.step_s - half), num_steps * (pace.step_s + half)
