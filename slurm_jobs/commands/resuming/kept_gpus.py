"""Types of GPU of slices that a resume runs: each continues on the type that it started on."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run_folder.gpu_kinds import kind_begun_on
from slurm_jobs.run_folder.paths import RunPaths


def kinds_begun_on(
    paths: RunPaths, plan: Plan, num_again: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, str]]:
    """Return the GPU type on which each slice that runs again was started, by stage and slice.

    Only for stages that accept several types, and only types that they still accept.
    """
    kinds: dict[str, dict[int, str]] = {}
    for job in plan.jobs:
        stage = plan.stage(job.stage)
        if len(stage.resources.gpu) < 2:
            continue
        for index in job.slices:
            again = num_again.get(stage.name, {})
            kind = kind_begun_on(paths, stage.name, stage.fingerprint, again, (index,))
            if kind in stage.resources.gpu:
                kinds.setdefault(stage.name, {})[index] = kind
    return kinds


def kinds_kept(plan: Plan) -> list[str]:
    """Return in words which single types the plan's jobs request."""
    kept: dict[str, dict[str, list[int]]] = {}
    for job in plan.jobs:
        kept.setdefault(job.stage, {}).setdefault(job.resources.gpu_kept, []).extend(job.slices)
    texts = []
    for stage, kinds in kept.items():
        for kind, slices in kinds.items():
            which = f" for slices {ranges_text(sorted(slices))}" if len(kinds) > 1 else ""
            texts += [f"{stage}: gpu {kind} only{which} (started on it)"] if kind else []
    return texts
