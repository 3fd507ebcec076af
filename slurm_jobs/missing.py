"""Slices of stages that must be submitted, and the reasons. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_jobs.dependencies import Slices, barred_slices
from slurm_jobs.spec.model import RunSpec

if TYPE_CHECKING:
    from slurm_jobs.plan import Done, PlannedStage


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Slices to submit of one stage."""

    stage: PlannedStage
    slices: tuple[int, ...]
    max_running: int | None
    after_active: bool
    why: str


def missing_parts(stages: list[PlannedStage], spec: RunSpec, done: Done) -> list[Missing]:
    """Return the slices that are neither complete nor active, and their dependents, by stage."""
    parts: list[Missing] = []
    again: dict[str, Slices] = {}
    needless: set[str] = set()
    num_slices = {stage.name: stage.num_slices for stage in stages}
    for stage in stages:
        barred = barred_slices({d.stage: d.kind for d in stage.after}, again, stage.num_slices)
        active = done.active.get(stage.name, frozenset())
        completed = done.completed.get(stage.name, frozenset()) - barred
        missing = [i for i in range(stage.num_slices) if i not in completed and i not in active]
        if not missing:
            continue
        if _never_needed(stage, done, again, num_slices) or needless & _needed_by(stage):
            needless.add(stage.name)
            if barred:
                again[stage.name] = barred
            continue
        again[stage.name] = frozenset(missing)
        parents_again = [d.stage for d in stage.after if d.stage in again] if barred else []
        array = spec.stages[stage.name].array
        max_running = array.max_running if array else None
        room = None if max_running is None else max_running - len(active)
        parts.append(
            Missing(
                stage=stage,
                slices=tuple(missing),
                max_running=room if room is None or room > 0 else max_running,
                after_active=room is not None and room <= 0,
                why=_why(stage, missing, parents_again, done.why_not.get(stage.name)),
            )
        )
    return parts


def _needed_by(stage: PlannedStage) -> set[str]:
    """Return the stages that must be complete before the stage can start."""
    return {d.stage for d in stage.after if d.kind in {"afterok", "aftercorr"}}


def _never_needed(
    stage: PlannedStage, done: Done, runs_again: Collection[str], num_slices: Mapping[str, int]
) -> bool:
    """Check for `afternotok` of a stage that is complete and stays so."""
    for dependency in stage.after:
        if dependency.kind != "afternotok" or dependency.stage in runs_again:
            continue
        if len(done.completed.get(dependency.stage, ())) == num_slices[dependency.stage]:
            return True
    return False


def _why(
    stage: PlannedStage, missing: list[int], parents_again: list[str], why_not: str | None
) -> str:
    if why_not is not None:
        return why_not
    if parents_again:
        return f"comes after {', '.join(parents_again)}"
    if len(missing) == stage.num_slices:
        return "not complete"
    return f"{len(missing)} of {stage.num_slices} slices are not complete"
