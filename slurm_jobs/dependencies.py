"""What a stage's slices wait for, and which of them a parent's new work concerns. PURE.

`aftercorr` is Slurm's word for element after element of two arrays. It holds where both stages
have the same number of slices; anywhere else every slice waits for all of the parent
(`afterok`), which is always right and sometimes later, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_jobs.common.records import DependencyKind

if TYPE_CHECKING:
    from slurm_jobs.spec.model import Array, RunSpec

Slices = frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """A stage comes after another."""

    stage: str
    kind: DependencyKind
    """As it will be: `afterok` where the spec's `aftercorr` cannot be had."""
    instead: str = ""
    """Why it is not what the spec says; empty if it is."""


def stage_dependencies(name: str, spec: RunSpec) -> tuple[Dependency, ...]:
    """What a stage comes after."""
    return tuple(
        _dependency(name, parent, kind, spec) for parent, kind in spec.stages[name].after.items()
    )


def _dependency(name: str, parent: str, kind: DependencyKind, spec: RunSpec) -> Dependency:
    own, other = spec.stages[name].array, spec.stages[parent].array
    if kind != "aftercorr" or (own and other and own.num_slices == other.num_slices):
        return Dependency(stage=parent, kind=kind)
    why = f"`{parent}` has {_slices_text(other)} and `{name}` {_slices_text(own)}"
    return Dependency(stage=parent, kind="afterok", instead=_note(name, parent, why))


def _slices_text(array: Array | None) -> str:
    return "no array" if array is None else f"{array.num_slices} slices"


def _note(name: str, parent: str, why: str) -> str:
    return f"`{name}` waits for all of `{parent}` (afterok instead of aftercorr): {why}"


def not_side_by_side(name: str, parent: str) -> str:
    """The note on arrays whose jobs are cut or packed differently."""
    return _note(name, parent, "their jobs do not hold the same slices in the same elements")


def barred_slices(after: Mapping[str, str], again: Mapping[str, Slices], num_slices: int) -> Slices:
    """Slices of a stage that must run because what they come after runs again.

    Args:
        after: kind of dependency by parent.
        again: slices that run, by parent.
        num_slices: of the stage itself.
    """
    barred: Slices = frozenset()
    for parent, kind in after.items():
        slices = again.get(parent, frozenset())
        barred |= slices if kind == "aftercorr" or not slices else frozenset(range(num_slices))
    return barred


def corresponds(
    own: Sequence[int],
    own_slices_per_task: int | None,
    other: Sequence[int],
    other_slices_per_task: int | None,
) -> bool:
    """Whether each element of an array finds, under its number, what it waits for in the other.

    Args:
        own: slices of the array that waits, ascending.
        own_slices_per_task: see `slurm_jobs.run.elements`.
        other: slices of the array that it waits for.
        other_slices_per_task: the same of that one.
    """
    if own_slices_per_task is None and other_slices_per_task is None:
        return set(own) <= set(other)
    return own_slices_per_task == other_slices_per_task and tuple(own) == tuple(other)
