"""Statistical verdict on the speeds of two arms of runs. PURE.

The unit is the run. Steps of one run share the effects of its node, its neighbours and its
placement, so the spread between steps says nothing about the next run. With an offset of 1.5 %
between runs, methods that look within runs claim a difference in 69 to 85 % of the comparisons
of equal settings, a t-test on the means of runs in 2 to 4 % (`benchmarks/statistics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.base.student_t import two_sided

Word = Literal["faster", "slower", "equal", "cannot tell", "different here", "alike here"]
"""Verdict on the second arm. The last two are for single runs, and claim nothing about the next
one."""

CONFIDENCE = 0.95
"""Confidence of every interval that is reported: it decides when a difference between two runs
counts, in `compare` and in `tune`."""
EQUAL_SHARE = 0.01
"""Speeds within this share of each other are called equal."""
MIN_RUNS = 2
"""Minimum of each arm for a claim: with one there is no spread between runs."""
_MAX_DF_UNEQUAL_ARMS, _MAX_DF_TWO_RUNS = 1.2, 1.5
"""Maximum degrees of freedom, as a multiple of the smaller arm's: for arms of unequal size, and for
two runs each. Own choices, by simulation: the largest with which equal settings are called
different in at most 6 % of the comparisons, for any spreads."""
MAX_RUNS = 1_000
"""If more are needed, no number is recommended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Speed of the second arm over that of the first, with its interval."""

    word: Word
    ratio: float
    """Ratio of the geometric means over the runs; above 1 the second is faster."""
    low: float
    high: float
    """End of the `CONFIDENCE` interval; infinite if the runs have no spread."""
    more_runs: int | None = None
    """Additional runs of each arm that suffice for a claim, if the ratio and the spread stay as
    they are. None if none are needed, or more than `MAX_RUNS`."""


def judge(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare the speeds of two arms, one number per run (Welch's t-test on their logarithms).

    With few runs the degrees of freedom are limited, see `_half`.

    Args:
        first: speeds of the runs of the first arm, at least `MIN_RUNS`, each above 0.
        second: speeds of the second arm.

    Raises:
        ValueError: an arm has too few runs, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"{MIN_RUNS} runs an arm are needed, not {len(first)} and {len(second)}"
        raise ValueError(message)
    a, b = _logarithms(first), _logarithms(second)
    change, half = _welch(a, b)
    margin = math.log1p(EQUAL_SHARE)
    if abs(change) + half <= margin:  # even if the interval excludes 1
        return _verdict_of("equal", change, half)
    if abs(change) > half:
        return _verdict_of("faster" if change > 0 else "slower", change, half)

    # Half of the interval must be less than the change (then: faster or slower), or than the
    # distance from the change to the margin (then: equal). The larger of the two is reached first.
    wanted = max(abs(change), margin - abs(change))

    def would_decide(num_more: int) -> bool:
        return _half(a, b, num_more) < wanted

    low, high = 0, MAX_RUNS - min(len(a), len(b))
    if not would_decide(high):
        return _verdict_of("cannot tell", change, half)
    while high - low > 1:  # `low` would not, `high` would: more runs give a narrower interval
        middle = (low + high) // 2
        low, high = (low, middle) if would_decide(middle) else (middle, high)
    return _verdict_of("cannot tell", change, half, more_runs=high)


def judge_single(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare one run with one other, by the speeds of their stretches.

    Args:
        first: speeds of consecutive stretches of one run, each long enough that their means are
            nearly independent; see `stretch_speeds`.
        second: speeds of the other run.

    Raises:
        ValueError: a run has fewer than two stretches, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"2 stretches a run are needed, not {len(first)} and {len(second)}"
        raise ValueError(message)
    change, half = _welch(_logarithms(first), _logarithms(second))
    return _verdict_of("different here" if abs(change) > half else "alike here", change, half)


def interval(speeds: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of some runs' speeds, and its interval; infinite for one run."""
    logs = _logarithms(speeds)
    mean = mean_value(logs)
    if len(logs) < MIN_RUNS:
        return math.exp(mean), 0.0, math.inf
    half = two_sided(CONFIDENCE, len(logs) - 1) * math.sqrt(_variance(logs) / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _verdict_of(word: Word, change: float, half: float, more_runs: int | None = None) -> Verdict:
    return Verdict(
        word=word,
        ratio=math.exp(change),
        low=math.exp(change - half),
        high=math.exp(change + half),
        more_runs=more_runs,
    )


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the difference of means, and half its interval (Welch 1947, Satterthwaite 1946)."""
    return mean_value(b) - mean_value(a), _half(a, b)


def _half(a: Sequence[float], b: Sequence[float], num_more: int = 0) -> float:
    """Return half of the interval of the difference, if each arm had so many more runs.

    Satterthwaite's degrees of freedom come from the observed spreads, and are limited here. If the
    few runs of the smaller arm agree by chance, the formula gives nearly the degrees of freedom of
    the larger arm, and the interval is too narrow: in a simulation of 2 runs against 8 with a
    spread of a third, 11 % of equal settings are called different.
    """
    sizes = [len(a) + num_more, len(b) + num_more]
    parts = [_variance(values) / size for values, size in zip((a, b), sizes, strict=True)]
    if sum(parts) == 0:
        return 0.0
    num_degrees = sum(parts) ** 2 / sum(
        part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True)
    )
    least = min(sizes) - 1
    if sizes[0] != sizes[1]:
        num_degrees = min(num_degrees, _MAX_DF_UNEQUAL_ARMS * least)
    elif least == 1:
        num_degrees = min(num_degrees, _MAX_DF_TWO_RUNS)
    return two_sided(CONFIDENCE, num_degrees) * math.sqrt(sum(parts))


def mean_value(values: Sequence[float]) -> float:
    """Return the mean of the values, of which there is at least one."""
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = mean_value(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _logarithms(speeds: Sequence[float]) -> list[float]:
    if not all(math.isfinite(speed) and speed > 0 for speed in speeds):
        message = f"speeds must be above 0, not {list(speeds)}"
        raise ValueError(message)
    return [math.log(speed) for speed in speeds]


_WIDE_FACTOR = 3.0
"""Factor between the ends of an interval: settings that matter change a speed by less. Own choice.
"""
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")


def change(verdict: Verdict) -> str:
    """Return `B / A 1.032 (95 % interval 1.010 to 1.054)`; without a verdict, the width."""
    wide = width_text(verdict.low, verdict.high) if verdict.word == "cannot tell" else ""
    ends = wide or f"{verdict.low:.3f} to {verdict.high:.3f}"
    return f"B / A {verdict.ratio:.3f} ({_INTERVAL} {ends})"


def width_text(low: float, high: float) -> str:
    """Return `wider than a factor of 1,000` if the interval is uselessly wide; else nothing."""
    if low <= 0 or math.isinf(high) or high / low <= _WIDE_FACTOR:
        return ""
    power = 10 ** math.floor(math.log10(high / low))
    return f"wider than a factor of {int(high / low / power) * power:,}"
