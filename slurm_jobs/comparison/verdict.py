"""Statistical verdict on the speeds of two arms of runs. PURE.

The unit is the run. Steps of one run share the effects of its node, its neighbours and its
placement, so the spread between steps says nothing about the next run. With an offset of 1.5 %
between runs, methods that look within runs claim a difference in 69 to 85 % of the comparisons of
equal settings, a t-test on the means of runs in 2 to 4 % (`benchmarks/statistics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.student import CONFIDENCE, two_sided

Word = Literal["faster", "slower", "equal", "cannot tell", "different here", "alike here"]
"""Verdict on the second arm. The last two are for single runs, and claim nothing about the next
one."""

EQUAL_SHARE = 0.01
"""Speeds within this share of each other are called equal."""
MIN_RUNS = 2
"""Minimum of each arm for a claim: with one there is no spread between runs."""
_UNLIKE_ARMS, _TWO_RUNS = 1.2, 1.5
"""Maximum degrees of freedom, as a multiple of the smaller arm's (`_most_degrees`). Own choices, by
simulation: the largest with which equal settings are called different in at most 6 % of the
comparisons, for any spreads."""
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
    """Number in each arm for a narrow enough interval, if the ratio and the spread stay as they
    are. None if nothing is missing, or more than `MAX_RUNS` would be."""


def judge(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare the speeds of two arms, one number per run (Welch's t-test on their logarithms).

    With few runs the degrees of freedom are held down, see `_most_degrees`.

    Args:
        first: speeds of the runs of the first arm, at least `MIN_RUNS`, each above 0.
        second: speeds of the second arm.

    Raises:
        ValueError: an arm has too few runs, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"{MIN_RUNS} runs an arm are needed, here are {len(first)} and {len(second)}"
        raise ValueError(message)
    a, b = _logarithms(first), _logarithms(second)
    change, half = _welch(a, b)
    word = _word(change, half)
    more = _more_runs(a, b, change) if word == "cannot tell" else None
    return _verdict(word, change, half, more)


def judge_single(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare one run with one other, by the speeds of their stretches.

    Args:
        first: speeds of stretches of the one run that follow each other and are long enough for
            their means to be nearly independent; see `stretches`.
        second: speeds of the other run.

    Raises:
        ValueError: a run has fewer than two stretches, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"2 stretches a run are needed, here are {len(first)} and {len(second)}"
        raise ValueError(message)
    change, half = _welch(_logarithms(first), _logarithms(second))
    return _verdict("different here" if abs(change) > half else "alike here", change, half, None)


def interval(speeds: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of some runs' speeds, and its interval; infinite for one run."""
    logs = _logarithms(speeds)
    mean = sum(logs) / len(logs)
    if len(logs) < MIN_RUNS:
        return math.exp(mean), 0.0, math.inf
    half = two_sided(CONFIDENCE, len(logs) - 1) * math.sqrt(_variance(logs) / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _verdict(word: Word, change: float, half: float, more_runs: int | None) -> Verdict:
    return Verdict(
        word=word,
        ratio=math.exp(change),
        low=math.exp(change - half),
        high=math.exp(change + half),
        more_runs=more_runs,
    )


def _word(change: float, half: float) -> Word:
    """Return the word; an interval wholly within the margin is equal, even if it excludes 1."""
    margin = math.log1p(EQUAL_SHARE)
    if abs(change) + half <= margin:
        return "equal"
    if abs(change) <= half:
        return "cannot tell"
    return "faster" if change > 0 else "slower"


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the difference of means, and half its interval (Welch 1947, Satterthwaite 1946)."""
    change = sum(b) / len(b) - sum(a) / len(a)
    return change, _half((_variance(a), _variance(b)), (len(a), len(b)))


def _half(variances: tuple[float, float], sizes: tuple[int, int]) -> float:
    """Return half of the interval of the difference, with so many runs in the arms."""
    parts = [variance / size for variance, size in zip(variances, sizes, strict=True)]
    if sum(parts) == 0:
        return 0.0
    num_degrees = sum(parts) ** 2 / sum(
        part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True)
    )
    num_degrees = min(num_degrees, _most_degrees(*sizes))
    return two_sided(CONFIDENCE, num_degrees) * math.sqrt(sum(parts))


def _most_degrees(num_first: int, num_second: int) -> float:
    """Return the limit on the degrees of freedom.

    Satterthwaite's come from the observed spreads. If the smaller arm's few runs are close together
    by chance, they equal the larger arm's, and the interval is too narrow: of 2 runs against 8 with
    a spread of a third, 11 % are called different from their equals.
    """
    least = min(num_first, num_second) - 1
    if num_first != num_second:
        return _UNLIKE_ARMS * least
    return _TWO_RUNS if least == 1 else math.inf


def _more_runs(a: Sequence[float], b: Sequence[float], change: float) -> int | None:
    """Return the runs per arm for an interval whose half is less than the change to detect.

    That is the change from none, or, if it is small, from the margin of equality.
    """
    variances = _variance(a), _variance(b)
    wanted = max(abs(change), math.log1p(EQUAL_SHARE) - abs(change))

    def would_tell(num_more: int) -> bool:
        return _half(variances, (len(a) + num_more, len(b) + num_more)) < wanted

    low, high = (
        0,
        MAX_RUNS - min(len(a), len(b)),
    )  # `low` would not, `high` would: more runs give a narrower interval
    if not would_tell(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if would_tell(middle) else (middle, high)
    return high


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _logarithms(speeds: Sequence[float]) -> list[float]:
    if not all(math.isfinite(speed) and speed > 0 for speed in speeds):
        message = f"speeds must be above 0, not {list(speeds)}"
        raise ValueError(message)
    return [math.log(speed) for speed in speeds]
