"""Work that is older than what it was made from. PURE.

A submit or resume hands in each stage after those that it comes after, so what is complete
has an intent newer than any of theirs. Where a command is killed, or refused a job, between
a stage and what comes after it, that order is broken: the later stage's work was made from
what is there no more, whatever its records say, and `resume` runs it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_jobs.dependencies import Slices
from slurm_jobs.run.intents import Intent

Ages = Mapping[int, int]
"""By slice the number of the newest intent among its own and those of all that it comes after."""


def outdated_slices(
    after: Mapping[str, str], newest: Mapping[int, Intent], ages: Mapping[str, Ages]
) -> Slices:
    """Slices of a stage that were submitted before something that they come after.

    Args:
        after: kind of dependency by parent.
        newest: the newest intent by slice.
        ages: of the parents; one that is left out counts for nothing.
    """
    above = _above(after, ages, newest)
    return frozenset(i for i, own in newest.items() if own.number < above[i])


def ages_of(
    after: Mapping[str, str],
    newest: Mapping[int, Intent],
    ages: Mapping[str, Ages],
    num_slices: int,
) -> Ages:
    """The ages of a stage's slices, from those of its parents."""
    above = _above(after, ages, range(num_slices))
    return {i: max(newest[i].number if i in newest else 0, above[i]) for i in range(num_slices)}


def _above(
    after: Mapping[str, str], ages: Mapping[str, Ages], slices: Iterable[int]
) -> dict[int, int]:
    """By slice the newest intent of what it comes after: `aftercorr` is of its like alone."""
    alike = [ages[name] for name, kind in after.items() if kind == "aftercorr" and name in ages]
    whole = [ages[name] for name, kind in after.items() if kind != "aftercorr" and name in ages]
    of_all = max((number for parent in whole for number in parent.values()), default=0)
    return {i: max([of_all, *(parent.get(i, 0) for parent in alike)]) for i in slices}
