"""One comparison of a tuning: interleaved trials of two arms, until they tell: PURE.

The unit is the run, as in `compare`: each trial is a run of its own, started anew, and one number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.comparison.verdict import MIN_RUNS, Verdict, judge
from slurm_jobs.tuning.model import Arm, Trial

MIN_REPEATS = 3
"""Of each arm, before anything is said. Own choice: with 2 the interval is four times as wide."""
MAX_REPEATS = 8
"""Of each arm. Own choice: what 8 do not tell is too small to be worth the budget."""
MAX_FAILURES = 2
"""Of trials of the first arm, which has run before: then something else is wrong."""
_ORDER: tuple[Arm, ...] = ("A", "B", "B", "A")
"""Again and again: whatever drifts evenly weighs on both arms alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """The trials of one comparison that count."""

    first: tuple[Trial, ...]
    """Those of arm A that did not fail; so `second`."""
    second: tuple[Trial, ...]
    failures: tuple[Trial, ...]

    @property
    def next_arm(self) -> Arm:
        """Whose turn it is."""
        return _ORDER[(len(self.first) + len(self.second)) % len(_ORDER)]

    @property
    def is_begun(self) -> bool:
        """Whether any trial was made."""
        return bool(self.first or self.second or self.failures)

    @property
    def verdict(self) -> Verdict | None:
        """Of the second arm against the first; None with too few trials of either."""
        first, second = (tuple(t.speed for t in arm) for arm in (self.first, self.second))
        is_told = min(len(first), len(second)) >= MIN_RUNS and min(*first, *second) > 0
        return _judged(first, second) if is_told else None

    @property
    def second_failure(self) -> str:
        """Why the second arm cannot run; empty if it can."""
        return next((t.failure for t in self.failures if t.arm == "B"), "")

    @property
    def is_broken(self) -> bool:
        """Whether the first arm, which ran before, no longer does."""
        return sum(t.arm == "A" for t in self.failures) >= MAX_FAILURES

    @property
    def is_over(self) -> bool:
        """Whether another trial would change nothing."""
        least, most = sorted((len(self.first), len(self.second)))
        if self.second_failure or self.is_broken or least >= MAX_REPEATS:
            return True
        verdict = self.verdict
        if verdict is None or least != most or least < MIN_REPEATS:
            return False
        return verdict.word != "cannot tell" or not may_tell(verdict, least)

    @property
    def num_missing(self) -> int:
        """Trials until something can be said, of both arms; one more pair where it could not."""
        made = len(self.first) + len(self.second)
        return max(2 * MIN_REPEATS - made, 2 - made % 2)


@functools.lru_cache
def _judged(first: tuple[float, ...], second: tuple[float, ...]) -> Verdict:
    """Of each comparison once: the course is followed anew after every trial."""
    return judge(first, second)


def may_tell(verdict: Verdict, num_repeats: int) -> bool:
    """Whether it is worth going on: not where twice as many repeats as are allowed would not tell.

    Twice, because the spread of three repeats is itself uncertain by such a factor. Own choice.
    """
    return verdict.more_runs is not None and num_repeats + verdict.more_runs <= 2 * MAX_REPEATS


def pairs_of(
    trials: Sequence[Trial], comparison: str, nodes: tuple[str, ...], num_steps: int
) -> Pairs:
    """The trials of a comparison, all of them of the same length and on the same nodes.

    An attempt on other nodes, or with another budget and so another length, begins a comparison
    anew that the one before it did not end.

    Args:
        trials: of the whole tuning, in their order.
        comparison: which is meant.
        nodes: of this attempt.
        num_steps: of a trial of this attempt.
    """
    own = [trial for trial in trials if trial.comparison == comparison]
    then = _sorted([trial for trial in own if _likeness(trial) == _likeness(own[-1])])
    if then.is_over:
        return then
    return _sorted([trial for trial in own if _likeness(trial) == (nodes, num_steps)])


def _likeness(trial: Trial) -> tuple[tuple[str, ...], int]:
    """What trials must have in common to be set against each other."""
    return trial.nodes, trial.num_steps


def _sorted(trials: Sequence[Trial]) -> Pairs:
    def arm(name: Arm) -> tuple[Trial, ...]:
        return tuple(trial for trial in trials if trial.arm == name and not trial.failure)

    return Pairs(
        first=arm("A"), second=arm("B"), failures=tuple(trial for trial in trials if trial.failure)
    )


def afford(pairs: Pairs, left_s: float, trial_s: float, *, kept_back: int) -> bool:
    """Whether the budget bears what this comparison still needs, and what comes after it.

    Args:
        pairs: so far.
        left_s: of the budget.
        trial_s: that one trial takes.
        kept_back: trials that must be left for what comes after.
    """
    return left_s >= (pairs.num_missing + kept_back) * trial_s
