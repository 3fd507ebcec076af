"""Reasons why complete work of a run does not count in a resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.commands.resuming.kept_work import ChangedCode
from slurm_jobs.plan.fingerprints import changed_fields, parents_of
from slurm_jobs.plan.planned import PlannedStage
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run.prepare_resume import Preparation

DAMAGED = "its output is missing or cut short"
_MOST_FILES_NAMED = 3


def unchanged_code(before: Mapping[str, Mapping[str, Any]], changed: ChangedCode) -> dict[str, str]:
    """Return the field `code` of the last plan for stages that use nothing that changed."""
    unchanged: dict[str, str] = {}
    for name, files in changed.items():
        fields = before.get(name, {}).get("fields", {})
        if not files and "code" in fields:
            unchanged[name] = fields["code"]
    return unchanged


def why_not_complete(
    stages: Sequence[PlannedStage],
    before: Mapping[str, Mapping[str, Any]],
    preparation: Preparation,
    again: Mapping[str, Slices],
    outdated: ChangedCode,
) -> dict[str, dict[int, str]]:
    """Return why finished work does not count any more, by stage and slice."""
    reasons: dict[str, dict[int, str]] = {}
    for stage in stages:
        fields = before.get(stage.name, {}).get("fields", {})
        keys = changed_fields(fields, stage.fields) if fields else []
        own = reasons.setdefault(stage.name, {})
        own |= dict.fromkeys(preparation.damaged.get(stage.name, ()), DAMAGED)
        if fields and parents_of(fields) != parents_of(stage.fields):
            own |= dict.fromkeys(range(stage.num_slices), "changed: after")
        for index, files in outdated.get(stage.name, {}).items():
            if files:
                others = len(files) - _MOST_FILES_NAMED
                more = f" and {others} more" if others > 0 else ""
                own[index] = f"code changed: {', '.join(files[:_MOST_FILES_NAMED])}{more}"
        own |= dict.fromkeys(again.get(stage.name, ()), "asked for")
        if keys and keys != ["code"]:
            every = f"changed: {', '.join(key for key in keys if key != 'code')}"
            own |= dict.fromkeys(range(stage.num_slices), every)
    return reasons
