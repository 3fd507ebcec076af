"""How long a step of a training takes from start to start, and how sure that is: PURE."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from slurm_jobs.common.stretches import stretch_speeds
from slurm_jobs.common.student import CONFIDENCE, two_sided
from slurm_jobs.report.model.training import Pace
from slurm_jobs.report.numbers.rates import total
from slurm_jobs.report.numbers.steps import AttemptSteps


def find_pace(attempts: Sequence[AttemptSteps]) -> Pace | None:
    """The pace on the number of ranks that the newest attempt had.

    None where fewer steps are known than `stretches.MIN_STEPS`. Checkpoints and evaluation in the
    loop are in it, as they will come again.
    """
    newest = attempts[-1]
    alike = [a for a in attempts if a.num_ranks == newest.num_ranks and a.num_measured]
    whole = [a for a in alike if len(a.ranks) == a.num_ranks]
    if not whole:
        return None
    seconds = np.concatenate([a.measured(a.longest)["step_s"] for a in whole])
    speeds = stretch_speeds(np.ones(len(seconds)), seconds.astype(np.float64))
    if not speeds:
        return None
    times = [1 / speed for speed in speeds]
    counted = [a.measured(i) for a in whole for i in range(len(a.ranks))]
    said = [t.steps.metadata.get("num_steps") for t in newest.ranks if t.steps is not None]
    return Pace(
        num_ranks=newest.num_ranks,
        step_s=statistics.mean(times),
        spread_s=statistics.stdev(times),
        num_steps=len(seconds),
        num_stretches=len(times),
        samples_per_step=total(counted, "num_samples") / len(seconds),
        num_planned=int(said[0]) if said and said[0] else None,
    )


def time_of(pace: Pace, num_steps: int) -> tuple[float, float]:
    """From, and up to: seconds that so many further steps take, at 95 %.

    The mean of what comes lies about the mean of what was, each as uncertain as the stretches
    that make it up are many (a prediction interval). What the future has and the past had not, it
    cannot know.
    """
    ahead = max(1.0, num_steps * pace.num_stretches / pace.num_steps)
    half = (
        two_sided(CONFIDENCE, pace.num_stretches - 1)
        * pace.spread_s
        * math.sqrt(1 / pace.num_stretches + 1 / ahead)
    )
    return num_steps * max(0.0, pace.step_s - half), num_steps * (pace.step_s + half)
