"""How often `compare` claims false differences and finds real ones, on simulated runs.

    python -m benchmarks.statistics [--quick] [--json FILE]

Step times are AR(1) noise (correlation 0.6 between steps, 5 % of the mean) over 1,000 steps; each
run has its own offset (1.5 %), as from another node or neighbour. Settings are equal, or differ as
the case says, and `slurm_jobs.report.comparison` judges the speeds as `slurm-jobs compare` does.
The peers are common alternatives: Welch's t-test on the single steps of two runs, and a t-test on
ten stretches within each, which is all that two runs allow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.table import Row, arguments, row, show
from slurm_jobs.base.student_t import two_sided
from slurm_jobs.report.comparison.speed_verdict import judge, judge_single
from slurm_jobs.report.numbers.step_stretches import MIN_BLOCK_STEPS, stretch_speeds
from slurm_jobs.tuning.pairs import MAX_REPEATS, MIN_REPEATS, may_decide

NUM_STEPS, CORRELATION, NOISE, OFFSET = 1_000, 0.6, 0.05, 0.015
NUM_KNOBS = 4
UNLIKE_ARMS = (
    (2, 0.030, 2, 0.010),
    (3, 0.030, 3, 0.010),
    (2, OFFSET, 5, OFFSET),
    (2, OFFSET, 8, OFFSET),
    (2, 0.030, 8, 0.010),
    (3, 0.030, 10, 0.010),
)
"""(runs, offset) of the first arm, then of the second."""
TRIALS_AT_ONCE = 100
"""Trials drawn together: 16 MB for ten runs per arm."""
FALSE_CLAIMS = 0.06
CLAIMS = ("faster", "slower")


def step_times(
    rng: np.random.Generator, shape: tuple[int, ...], *, offset: float | np.ndarray, num_steps: int
) -> np.ndarray:
    """Return seconds [*shape, num_steps] with a mean of 1, times each run's offset.

    If the arms' offsets differ, `offset` is [2, 1, 1], to broadcast over `num_runs` and
    `num_steps`.
    """
    innovation = rng.normal(0, NOISE * np.sqrt(1 - CORRELATION**2), (*shape, num_steps))
    noise = np.empty_like(innovation)
    noise[..., 0] = rng.normal(0, NOISE, shape)
    for step in range(1, num_steps):
        noise[..., step] = CORRELATION * noise[..., step - 1] + innovation[..., step]
    offsets = np.exp(rng.normal(0, offset, (*shape, 1)))
    times: np.ndarray = offsets * np.exp(noise)
    return times


def speeds(times: np.ndarray, change: float) -> list[float]:
    """Return the steps per second of each run, [num_runs], made faster by `change`."""
    return [(1 + change) / float(mean) for mean in times.mean(axis=-1)]


def of_runs(words: tuple[str, ...], change: float) -> Callable[[np.ndarray], bool]:
    """Return a check whether runs, [2, num_runs, NUM_STEPS], get one of these verdicts."""

    def is_said(times: np.ndarray) -> bool:
        return judge(speeds(times[0], 0.0), speeds(times[1], change)).word in words

    return is_said


def of_unlike_arms(num_first: int, num_second: int) -> Callable[[np.ndarray], bool]:
    """Return a check whether arms with so many equal runs are judged different."""

    def is_claimed(times: np.ndarray) -> bool:
        first, second = times[0, :num_first], times[1, :num_second]
        return judge(speeds(first, 0.0), speeds(second, 0.0)).word in CLAIMS

    return is_claimed


def kept(change: float) -> Callable[[np.ndarray], bool]:
    """Return a check whether `tune`, which decides after each pair of runs, keeps a knob."""

    def is_kept(times: np.ndarray) -> bool:
        first, second = speeds(times[0], 0.0), speeds(times[1], change)
        for num in range(MIN_REPEATS, MAX_REPEATS + 1):
            verdict = judge(first[:num], second[:num])
            if verdict.word != "cannot tell" or not may_decide(verdict, num):
                break
        return verdict.word == "faster"

    return is_kept


def on_steps(times: np.ndarray) -> bool:
    """Check whether Welch's t-test on the single steps of two runs claims a difference."""
    first, second = times[0, 0], times[1, 0]
    error = np.sqrt(first.var(ddof=1) / NUM_STEPS + second.var(ddof=1) / NUM_STEPS)
    t = abs(first.mean() - second.mean()) / error
    return bool(t > two_sided(0.95, 2 * NUM_STEPS - 2))


def on_stretches(times: np.ndarray) -> bool:
    """Check whether ten stretches within each of two runs differ."""
    ones = np.ones(times.shape[-1])
    stretches = [stretch_speeds(ones, times[arm, 0]) for arm in (0, 1)]
    return judge_single(*stretches).word == "different here"


def share(
    decide: Callable[[np.ndarray], bool],
    num_trials: int,
    num_runs: int,
    *,
    offset: float | np.ndarray,
    num_steps: int = NUM_STEPS,
) -> float:
    """Return the share of trials in which `decide` is true; every case draws the same runs."""
    rng, measured = np.random.default_rng(20261123), 0
    for begin in range(0, num_trials, TRIALS_AT_ONCE):
        shape = (min(TRIALS_AT_ONCE, num_trials - begin), 2, num_runs)
        measured += sum(map(decide, step_times(rng, shape, offset=offset, num_steps=num_steps)))
    return measured / num_trials


def false_claims(num_trials: int) -> list[Row]:
    """Measure false claims for equal settings."""
    rows = []
    for num_runs in (2, 3, 5, 10):
        measured = share(of_runs(CLAIMS, 0.0), num_trials, num_runs, offset=OFFSET)
        within = {"Welch on single steps": on_steps, "ten stretches a run": on_stretches}
        for peer, decide in within.items() if num_runs == 3 else ():
            rows.append(
                row(
                    f"equal settings, {num_runs} runs an arm: claims a difference",
                    "share", measured, at_most=FALSE_CLAIMS, peer=f"{peer}, 1 run an arm",
                    peer_value=share(decide, num_trials, 1, offset=OFFSET),
                )
            )  # fmt: skip
        if num_runs != 3:
            case = f"equal settings, {num_runs} runs an arm: claims a difference"
            rows.append(row(case, "share", measured, at_most=FALSE_CLAIMS))
    case = "equal settings, no offset between runs, 1 run an arm: different in these two"
    rows.append(
        row(
            case, "share", share(on_stretches, num_trials, 1, offset=0.0), at_most=FALSE_CLAIMS,
            peer="Welch on single steps", peer_value=share(on_steps, num_trials, 1, offset=0.0),
        )
    )  # fmt: skip
    short = share(on_stretches, 2 * num_trials, 1, offset=0.0, num_steps=MIN_BLOCK_STEPS)
    rows.append(
        row(f"the same of {MIN_BLOCK_STEPS} steps, the fewest that are judged", "share", short)
    )
    return rows


def unlike_arms(num_trials: int) -> list[Row]:
    """Measure false claims when the arms differ in their number of runs or spread."""
    rows = []
    for num_first, first, num_second, second in UNLIKE_ARMS:
        decide = of_unlike_arms(num_first, num_second)
        offset = np.array([first, second]).reshape(2, 1, 1)
        measured = share(decide, num_trials, max(num_first, num_second), offset=offset)
        case = (
            f"equal settings, {num_first} runs (offset {first:.1%}) against {num_second} "
            f"({second:.1%}): claims a difference"
        )
        rows.append(row(case, "share", measured, at_most=FALSE_CLAIMS))
    return rows


def power(num_trials: int) -> list[Row]:
    """Measure how often a difference is found, and how often unequal settings are called equal."""
    rows = []
    for change in (0.02, 0.05, 0.10):
        for num_runs in (3, 5, 10):
            measured = share(of_runs(("faster",), change), num_trials, num_runs, offset=OFFSET)
            rows.append(
                row(f"{change:.0%} faster, {num_runs} runs an arm: finds it", "share", measured)
            )
    for change in (0.0, 0.015):
        measured = share(of_runs(("equal",), change), num_trials, 10, offset=OFFSET / 5)
        case = f"{change:.1%} faster, 10 runs an arm, offset 0.3 %: says equal within 1 %"
        rows.append(row(case, "share", measured, at_most=FALSE_CLAIMS if change else None))
    return rows


def tuning(num_trials: int) -> list[Row]:
    """Measure how often `tune` keeps knobs with no or little effect, in trials of 50 steps."""
    shares = {
        change: share(kept(change), num_trials, MAX_REPEATS, offset=OFFSET, num_steps=50)
        for change in (0.0, 0.05, 0.10, 0.20)
    }
    rows = []
    for change, measured in shares.items():
        case = f"tune, a knob that is {change:.0%} faster: kept"
        rows.append(row(case, "share", measured, at_most=None if change else FALSE_CLAIMS))
    return [*rows, *whole_tunings(shares[0.0])]


def whole_tunings(share_kept: float) -> list[Row]:
    """Compute the false results of a whole tuning: several useless knobs, then before and after.

    No simulation is needed: each comparison has its own trials, so they are independent, and the
    last one follows the same rule as a knob's.
    """
    keeps_one = 1 - (1 - share_kept) ** NUM_KNOBS
    case = f"tune, {NUM_KNOBS} knobs that do nothing"
    return [
        row(f"{case}: keeps one on the way", "share", keeps_one),
        row(f"{case}: changes the spec", "share", keeps_one * share_kept, at_most=FALSE_CLAIMS),
    ]


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    num_trials = 150 if options.quick else 2_000
    rows = [
        *false_claims(num_trials),
        *unlike_arms(num_trials),
        *power(num_trials),
        *tuning(num_trials),
    ]
    show(rows, options, ["numpy"])


if __name__ == "__main__":
    main()
