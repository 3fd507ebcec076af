"""Dependencies between the slices of stages, and the slices that new work affects. PURE.

`aftercorr` is Slurm's word for a dependency between equal elements of two arrays. It works where
both stages have the same number of slices. Otherwise every slice waits for all of the parent
(`afterok`), which is always right and sometimes later; a note reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_jobs.formats.config import DependencyKind

if TYPE_CHECKING:
    from slurm_jobs.spec.model import Array, RunSpec

Slices = frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """Dependency of a stage on another stage."""

    stage: str
    kind: DependencyKind
    """The kind that is submitted: `afterok` where the spec's `aftercorr` is impossible."""
    instead: str = ""
    """Reason why it differs from the spec; empty if it does not."""


def stage_dependencies(name: str, spec: RunSpec) -> tuple[Dependency, ...]:
    """Return the dependencies of a stage."""
    dependencies = []
    array = spec.stages[name].array
    for parent, kind in spec.stages[name].after.items():
        other = spec.stages[parent].array
        if kind != "aftercorr" or (array and other and array.num_slices == other.num_slices):
            dependencies.append(Dependency(stage=parent, kind=kind))
        else:
            why = f"`{parent}` has {_slices_text(other)} and `{name}` {_slices_text(array)}"
            note = _note(name, parent, why)
            dependencies.append(Dependency(stage=parent, kind="afterok", instead=note))
    return tuple(dependencies)


def _slices_text(array: Array | None) -> str:
    return "no array" if array is None else f"{array.num_slices} slices"


def _note(name: str, parent: str, why: str) -> str:
    return f"`{name}` waits for all of `{parent}` (afterok instead of aftercorr): {why}"


def note_on_different_cut(name: str, parent: str) -> str:
    """Return the note on arrays whose jobs are cut or packed differently."""
    return _note(name, parent, "their jobs do not hold the same slices in the same elements")


def barred_slices(after: Mapping[str, str], again: Mapping[str, Slices], num_slices: int) -> Slices:
    """Return the slices of a stage that must run because their parents run again.

    Args:
        after: kind of dependency by parent.
        again: slices that run, by parent.
        num_slices: number of slices of the stage.
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
    """Check whether each element of an array has its dependency under the same index in the other.

    Args:
        own: slices of the array that waits, ascending.
        own_slices_per_task: see `slurm_jobs.run_folder.orders`.
        other: slices of the array that it waits for.
        other_slices_per_task: the same of that one.
    """
    if own_slices_per_task is None and other_slices_per_task is None:
        return set(own) <= set(other)
    return own_slices_per_task == other_slices_per_task and tuple(own) == tuple(other)
