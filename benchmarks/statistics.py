"""How often `compare` claims what is not so, and finds what is: on simulated runs.

    python -m benchmarks.statistics [--quick] [--json FILE]

Step times are AR(1) noise (0.6 from one step to the next, 5 % of the mean) over 1,000 steps; each
run has an offset of its own (1.5 %), as another node or neighbour gives it. Each case is simulated
with settings that are equal, or differ by what the case says, and judged as `slurm-jobs compare`
judges runs: `slurm_jobs.report.compare` on their speeds. Peers are what people do instead:
Welch's t-test on the single steps of two runs, and a t-test on ten stretches within each, which is
all that two runs allow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.table import Row, arguments, row, show
from slurm_jobs.report.compare import judge, judge_single
from slurm_jobs.shared.statistics import MIN_BLOCK_STEPS, stretch_speeds, two_sided
from slurm_jobs.tuning.knobs import MAX_REPEATS, MIN_REPEATS, may_tell

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
"""Runs of the first arm and their offset, and those of the second."""
TRIALS_AT_ONCE = 100
"""That are drawn together: 16 MB where each has ten runs an arm."""
FALSE_CLAIMS = 0.06
CLAIMS = ("faster", "slower")


def step_times(
    rng: np.random.Generator, shape: tuple[int, ...], *, offset: float | np.ndarray, num_steps: int
) -> np.ndarray:
    """Seconds, [*shape, num_steps]; the mean is 1, times the run's own offset.

    Where the arms differ in it, `offset` is [2, 1, 1], before `num_runs` and `num_steps`.
    """
    innovation = rng.normal(0, NOISE * np.sqrt(1 - CORRELATION**2), (*shape, num_steps))
    noise = np.empty_like(innovation)
    noise[..., 0] = rng.normal(0, NOISE, shape)
    for step in range(1, num_steps):
        noise[..., step] = CORRELATION * noise[..., step - 1] + innovation[..., step]
    own = np.exp(rng.normal(0, offset, (*shape, 1)))
    times: np.ndarray = own * np.exp(noise)
    return times


def speeds(times: np.ndarray, change: float) -> list[float]:
    """Steps a second of each run, [num_runs], where the setting makes them faster by `change`."""
    return [(1 + change) / float(mean) for mean in times.mean(axis=-1)]


def of_runs(words: tuple[str, ...], change: float) -> Callable[[np.ndarray], bool]:
    """Whether runs, [2, num_runs, NUM_STEPS], are judged with one of the words."""

    def is_said(times: np.ndarray) -> bool:
        return judge(speeds(times[0], 0.0), speeds(times[1], change)).word in words

    return is_said


def of_unlike_arms(num_first: int, num_second: int) -> Callable[[np.ndarray], bool]:
    """Whether so many runs of equal settings, of [2, num_runs, NUM_STEPS], are told apart."""

    def is_claimed(times: np.ndarray) -> bool:
        first, second = times[0, :num_first], times[1, :num_second]
        return judge(speeds(first, 0.0), speeds(second, 0.0)).word in CLAIMS

    return is_claimed


def kept(change: float) -> Callable[[np.ndarray], bool]:
    """Whether `tune`, which looks after each pair, keeps a knob: [2, MAX_REPEATS, num_steps]."""

    def is_kept(times: np.ndarray) -> bool:
        first, second = speeds(times[0], 0.0), speeds(times[1], change)
        for num in range(MIN_REPEATS, MAX_REPEATS + 1):
            verdict = judge(first[:num], second[:num])
            if verdict.word != "cannot tell" or not may_tell(verdict, num):
                break
        return verdict.word == "faster"

    return is_kept


def on_steps(times: np.ndarray) -> bool:
    """Whether Welch's t-test on the single steps of two runs claims a difference."""
    first, second = times[0, 0], times[1, 0]
    error = np.sqrt(first.var(ddof=1) / NUM_STEPS + second.var(ddof=1) / NUM_STEPS)
    t = abs(first.mean() - second.mean()) / error
    return bool(t > two_sided(0.95, 2 * NUM_STEPS - 2))


def on_stretches(times: np.ndarray) -> bool:
    """Whether ten stretches within each of two runs differ."""
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
    """In which share of the trials it is so; each case draws the same runs."""
    rng, found = np.random.default_rng(20261123), 0
    for begin in range(0, num_trials, TRIALS_AT_ONCE):
        shape = (min(TRIALS_AT_ONCE, num_trials - begin), 2, num_runs)
        found += sum(map(decide, step_times(rng, shape, offset=offset, num_steps=num_steps)))
    return found / num_trials


def false_claims(num_trials: int) -> list[Row]:
    """Of settings that are equal."""
    rows = []
    for num_runs in (2, 3, 5, 10):
        found = share(of_runs(CLAIMS, 0.0), num_trials, num_runs, offset=OFFSET)
        within = {"Welch on single steps": on_steps, "ten stretches a run": on_stretches}
        for peer, decide in within.items() if num_runs == 3 else ():
            rows.append(
                row(
                    f"equal settings, {num_runs} runs an arm: claims a difference",
                    "share", found, at_most=FALSE_CLAIMS, peer=f"{peer}, 1 run an arm",
                    peer_value=share(decide, num_trials, 1, offset=OFFSET),
                )
            )  # fmt: skip
        if num_runs != 3:
            case = f"equal settings, {num_runs} runs an arm: claims a difference"
            rows.append(row(case, "share", found, at_most=FALSE_CLAIMS))
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
    """Of settings that are equal, where the arms have unlike numbers of runs, or spreads."""
    rows = []
    for num_first, first, num_second, second in UNLIKE_ARMS:
        decide = of_unlike_arms(num_first, num_second)
        offset = np.array([first, second]).reshape(2, 1, 1)
        found = share(decide, num_trials, max(num_first, num_second), offset=offset)
        case = (
            f"equal settings, {num_first} runs (offset {first:.1%}) beside {num_second} "
            f"({second:.1%}): claims a difference"
        )
        rows.append(row(case, "share", found, at_most=FALSE_CLAIMS))
    return rows


def power(num_trials: int) -> list[Row]:
    """Of settings that differ, and of calling equal what is not."""
    rows = []
    for change in (0.02, 0.05, 0.10):
        for num_runs in (3, 5, 10):
            found = share(of_runs(("faster",), change), num_trials, num_runs, offset=OFFSET)
            rows.append(
                row(f"{change:.0%} faster, {num_runs} runs an arm: finds it", "share", found)
            )
    for change in (0.0, 0.015):
        found = share(of_runs(("equal",), change), num_trials, 10, offset=OFFSET / 5)
        case = f"{change:.1%} faster, 10 runs an arm, offset 0.3 %: says equal within 1 %"
        rows.append(row(case, "share", found, at_most=FALSE_CLAIMS if change else None))
    return rows


def tuning(num_trials: int) -> list[Row]:
    """Of knobs that do nothing, or little, tried by `tune` with trials of 50 steps."""
    shares = {
        change: share(kept(change), num_trials, MAX_REPEATS, offset=OFFSET, num_steps=50)
        for change in (0.0, 0.05, 0.10, 0.20)
    }
    rows = []
    for change, found in shares.items():
        case = f"tune, a knob that is {change:.0%} faster: kept"
        rows.append(row(case, "share", found, at_most=None if change else FALSE_CLAIMS))
    return [*rows, *whole_tunings(shares[0.0])]


def whole_tunings(share_kept: float) -> list[Row]:
    """Of several knobs that do nothing, and of before and after at the end.

    Computed, not simulated anew: each comparison has trials of its own, so that they are
    independent, and the last one goes by the same rule as a knob's.
    """
    keeps_one = 1 - (1 - share_kept) ** NUM_KNOBS
    case = f"tune, {NUM_KNOBS} knobs that do nothing"
    return [
        row(f"{case}: keeps one on the way", "share", keeps_one),
        row(f"{case}: changes the spec", "share", keeps_one * share_kept, at_most=FALSE_CLAIMS),
    ]


def main() -> None:
    """Simulate, and print the table."""
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
