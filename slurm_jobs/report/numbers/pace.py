"""Time of a training step from start to start, and its uncertainty. PURE."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from slurm_jobs.common.stretches import stretch_speeds
from slurm_jobs.common.student import CONFIDENCE, two_sided
from slurm_jobs.report.inputs.records import RankTiming
from slurm_jobs.report.model.training import Pace
from slurm_jobs.report.numbers.newest import of_newest, phase_of
from slurm_jobs.report.numbers.steps import AttemptSteps


def find_pace(
    attempts: Sequence[AttemptSteps],
    fingerprints: Mapping[int, str],
    timings: Sequence[RankTiming] = (),
) -> Pace | None:
    """Return the pace of the newest phase and config, on as many ranks as the last attempt.

    None where fewer steps are known of it than `stretches.MIN_STEPS`. Checkpoints and evaluation in
    the loop are in it, as they will come again.

    Args:
        attempts: attempts of one slice, oldest first.
        fingerprints: hash of config and code by attempt.
        timings: timings of the slice, including starts without a step.
    """
    newest = attempts[-1]
    phase, whole = phase_of(newest), _whole(of_newest(attempts, fingerprints))
    parts = [_since(attempt, phase.first_step) for attempt in whole]
    seconds = np.concatenate([times for times, _ in parts]) if parts else np.empty(0)
    speeds = stretch_speeds(np.ones(len(seconds)), seconds.astype(np.float64))
    if not speeds:
        return None
    times = [1 / speed for speed in speeds]
    return Pace(
        num_ranks=newest.num_ranks,
        step_s=statistics.mean(times),
        spread_s=statistics.stdev(times),
        num_steps=len(seconds),
        num_stretches=len(times),
        samples_per_step=sum(samples for _, samples in parts) / len(seconds),
        num_planned=_num_planned(newest),
        num_done=int(newest.records[newest.longest]["step"][-1]) + 1,
        num_saved=_num_saved(newest),
        num_phases=phase.num_phases,
        is_last_phase=phase.is_last,
        attempt=newest.attempt,
        warmup_s=_warmup_s(whole, phase.first_step, statistics.mean(times)),
        num_loaded=_num_loaded(newest, timings) if phase.num_phases == 1 else None,
    )


def _whole(attempts: Sequence[AttemptSteps]) -> list[AttemptSteps]:
    """Return complete attempts on as many ranks as the last, with steps after the warm-up."""
    num_ranks = attempts[-1].num_ranks
    return [a for a in attempts if a.num_ranks == num_ranks == len(a.ranks) and a.num_measured]


def _num_planned(attempt: AttemptSteps) -> int | None:
    file = attempt.ranks[0].steps
    planned = file.metadata.get("num_steps") if file is not None else None
    return int(planned) if planned else None


def _since(attempt: AttemptSteps, first_step: int) -> tuple[np.ndarray, float]:
    """Return seconds and samples (of all ranks) of its measured steps, from a first step on."""
    ranks = [attempt.measured(index) for index in range(len(attempt.ranks))]
    now = ranks[attempt.longest]["step"] >= first_step
    samples = sum(float(rank["num_samples"][now].sum(dtype=np.float64)) for rank in ranks)
    return ranks[attempt.longest]["step_s"][now], samples


def _num_saved(attempt: AttemptSteps) -> int:
    """Return the steps up to the last save: what a killed attempt leaves."""
    kept = attempt.kept(attempt.longest)
    saved = kept["step"][kept["checkpoint_s"] > 0]
    if len(saved):
        return int(saved[-1]) + 1
    return int(kept["step"][0]) if len(kept) else 0


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


def _num_loaded(newest: AttemptSteps, timings: Sequence[RankTiming]) -> int | None:
    """Return the loaded step of the latest start after that attempt, as the start recorded it."""
    steps = [
        span["step"]
        for timing in sorted(timings, key=lambda timing: timing.attempt)
        for span in timing.spans
        if timing.attempt > newest.attempt
        and span["name"] == "checkpoint_load"
        and isinstance(span.get("step"), int)
    ]
    return int(steps[-1]) if steps else None


def time_of(pace: Pace, num_steps: int) -> tuple[float, float]:
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
