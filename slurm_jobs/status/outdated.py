"""Detection of work that is older than its inputs.

A submit or resume submits each stage after its parents, so the intent of completed work is newer
than those of its parents. If a command is killed, or a job refused, between a stage and its
child, that order is broken: the child's work was made from inputs that no longer exist, whatever
its records show, and `resume` runs it again. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run_folder.ledger import Intent

Ages = Mapping[int, int]
"""Number of the newest intent among a slice's own and those of all its ancestors, by slice."""


def outdated_slices(
    after: Mapping[str, str], newest: Mapping[int, Intent], ages: Mapping[str, Ages]
) -> Slices:
    """Return the slices of a stage that were submitted before something that they depend on.

    Args:
        after: kind of dependency by parent.
        newest: the newest intent by slice.
        ages: of the parents; a parent that is left out is ignored.
    """
    above = _above(after, ages, newest)
    return frozenset(i for i, intent in newest.items() if intent.number < above[i])


def ages_of(
    after: Mapping[str, str],
    newest: Mapping[int, Intent],
    ages: Mapping[str, Ages],
    num_slices: int,
) -> Ages:
    """Return the ages of a stage's slices, from those of its parents."""
    above = _above(after, ages, range(num_slices))
    return {i: max(newest[i].number if i in newest else 0, above[i]) for i in range(num_slices)}


def _above(
    after: Mapping[str, str], ages: Mapping[str, Ages], slices: Iterable[int]
) -> dict[int, int]:
    """Return the newest intent among the parents, by slice; `aftercorr` uses the same slice."""
    alike = [ages[name] for name, kind in after.items() if kind == "aftercorr" and name in ages]
    whole = [ages[name] for name, kind in after.items() if kind != "aftercorr" and name in ages]
    of_all = max((number for parent in whole for number in parent.values()), default=0)
    return {i: max([of_all, *(parent.get(i, 0) for parent in alike)]) for i in slices}
