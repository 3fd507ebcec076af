"""Slices that are neither complete nor active, and why each of them runs. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.plan.planned import Done, PlannedStage
from slurm_jobs.plan.stage_dependencies import Slices, barred_slices
from slurm_jobs.spec.model import RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Slices to submit of one stage."""

    stage: PlannedStage
    slices: tuple[int, ...]
    max_running: int | None
    after_active: bool
    reasons: Mapping[int, str | None]
    """Why each of the slices runs; None if it is merely not complete."""


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
        needs = {d.stage for d in stage.after if d.kind in {"afterok", "aftercorr"}}
        if _never_needed(stage, done, again, num_slices) or needless & needs:
            needless.add(stage.name)
            if barred:
                again[stage.name] = barred
            continue
        again[stage.name] = frozenset(missing)
        parents_again = [d.stage for d in stage.after if d.stage in again] if barred else []
        comes_after = f"comes after {', '.join(parents_again)}"
        reasons = {index: comes_after if index in barred else None for index in missing}
        reasons |= {i: why for i, why in done.why_not.get(stage.name, {}).items() if i in reasons}
        array = spec.stages[stage.name].array
        max_running = array.max_running if array else None
        running = done.num_running.get(stage.name, len(active))
        room = None if max_running is None else max_running - running
        parts.append(
            Missing(
                stage=stage,
                slices=tuple(missing),
                max_running=room if room is None or room > 0 else max_running,
                after_active=room is not None and room <= 0,
                reasons=reasons,
            )
        )
    return parts


def reasons_text(reasons: Mapping[int, str | None], slices: Sequence[int], num_slices: int) -> str:
    """Return why the slices of a job run: one reason, or each with its slices."""
    by_reason: dict[str | None, list[int]] = {}
    for index in slices:
        by_reason.setdefault(reasons[index], []).append(index)
    if len(by_reason) > 1:
        texts = {why: "not complete" if why is None else why for why in by_reason}
        return "; ".join(f"{ranges_text(own)}: {texts[why]}" for why, own in by_reason.items())
    why = next(iter(by_reason), "")  # a site without arrays has pieces without slices
    if why is not None:
        return why
    if len(slices) == num_slices:
        return "not complete"
    verb = "is" if len(slices) == 1 else "are"
    return f"{len(slices)} of {num_slices} slices {verb} not complete"


def _never_needed(
    stage: PlannedStage, done: Done, runs_again: Collection[str], num_slices: Mapping[str, int]
) -> bool:
    """Check whether a stage handles the failure of one that is complete and does not run again."""
    return any(
        dependency.kind == "afternotok"
        and dependency.stage not in runs_again
        and len(done.completed.get(dependency.stage, ())) == num_slices[dependency.stage]
        for dependency in stage.after
    )
