"""Comparison in a tuning: interleaved trials of two arms until the result is clear.

The unit is the run, as in `compare`: each trial is a separate run, started from scratch, and
gives one number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.report.comparison.speed_verdict import MIN_RUNS, Verdict, judge
from slurm_jobs.tuning.trial_model import Arm, Trial

MIN_REPEATS = 3
"""Minimum of each arm. Own choice: with 2 the interval is four times as wide."""
MAX_REPEATS = 8
"""Maximum of each arm. Own choice: a smaller difference is not worth the budget."""
MAX_FAILURES = 2
"""Failed trials of the first arm, which ran before: then something else is wrong."""
_ORDER: tuple[Arm, ...] = ("A", "B", "B", "A")
"""Repeated, so that steady drift affects both arms equally."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPairs:
    """Valid trials of one comparison."""

    first: tuple[Trial, ...]
    """Trials of arm A that did not fail; `second` those of B."""
    second: tuple[Trial, ...]
    failures: tuple[Trial, ...]

    @property
    def next_arm(self) -> Arm:
        """Return the arm of the next trial."""
        return _ORDER[(len(self.first) + len(self.second)) % len(_ORDER)]

    @property
    def is_begun(self) -> bool:
        """True if any trial was run."""
        return bool(self.first or self.second or self.failures)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the second arm against the first; None with too few trials of either."""
        first, second = (tuple(t.speed for t in arm) for arm in (self.first, self.second))
        is_told = min(len(first), len(second)) >= MIN_RUNS and min(*first, *second) > 0
        return _judged(first, second) if is_told else None

    @property
    def second_failure(self) -> str:
        """Reason why the second arm cannot run; empty if it can."""
        return next((t.failure for t in self.failures if t.arm == "B"), "")

    @property
    def is_broken(self) -> bool:
        """True if the first arm, which ran before, fails now."""
        return sum(t.arm == "A" for t in self.failures) >= MAX_FAILURES

    @property
    def is_over(self) -> bool:
        """True if another trial would change nothing."""
        least, most = sorted((len(self.first), len(self.second)))
        if self.second_failure or self.is_broken or least >= MAX_REPEATS:
            return True
        verdict = self.verdict
        if verdict is None or least != most or least < MIN_REPEATS:
            return False
        return verdict.word != "cannot tell" or not may_decide(verdict, least)

    @property
    def num_missing(self) -> int:
        """Trials until a verdict is possible, of both arms; one more pair after an unclear one."""
        num_made = len(self.first) + len(self.second)
        return max(2 * MIN_REPEATS - num_made, 2 - num_made % 2)


@functools.lru_cache
def _judged(first: tuple[float, ...], second: tuple[float, ...]) -> Verdict:
    """Cache the verdict: the progress is determined again after every trial."""
    return judge(first, second)


def may_decide(verdict: Verdict, num_repeats: int) -> bool:
    """Check whether more trials are worthwhile: twice the maximum of repeats could give a verdict.

    Twice, because the spread of three repeats is itself uncertain by such a factor. Own choice.
    """
    return verdict.more_runs is not None and num_repeats + verdict.more_runs <= 2 * MAX_REPEATS


def pairs_of(
    trials: Sequence[Trial], comparison: str, nodes: tuple[str, ...], num_steps: int
) -> TrialPairs:
    """Return the trials of a comparison, all of the same length and on the same nodes.

    An attempt on other nodes, or with another budget and so another length, restarts a comparison
    that the previous attempt did not finish.

    Args:
        trials: trials of the whole tuning, in order.
        comparison: key of the comparison.
        nodes: nodes of this attempt.
        num_steps: length of a trial of this attempt.
    """
    of_comparison = [trial for trial in trials if trial.comparison == comparison]
    then = _sorted(
        [trial for trial in of_comparison if _likeness(trial) == _likeness(of_comparison[-1])]
    )
    if then.is_over:
        return then
    return _sorted([trial for trial in of_comparison if _likeness(trial) == (nodes, num_steps)])


def _likeness(trial: Trial) -> tuple[tuple[str, ...], int]:
    """Return what must be equal for trials to be compared."""
    return trial.nodes, trial.num_steps


def _sorted(trials: Sequence[Trial]) -> TrialPairs:
    def arm(name: Arm) -> tuple[Trial, ...]:
        return tuple(trial for trial in trials if trial.arm == name and not trial.failure)

    return TrialPairs(
        first=arm("A"), second=arm("B"), failures=tuple(trial for trial in trials if trial.failure)
    )


def afford(pairs: TrialPairs, left_s: float, trial_s: float, *, kept_back: int) -> bool:
    """Check whether the budget suffices for the rest of this comparison, and for what follows.

    Args:
        pairs: trials so far.
        left_s: rest of the budget.
        trial_s: time of one trial.
        kept_back: trials reserved for later.
    """
    return left_s >= (pairs.num_missing + kept_back) * trial_s
