"""Settings of a resume that none of its jobs uses, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurm_jobs.base.redact import hidden_setting
from slurm_jobs.commands.resuming.slice_requests import plain_overrides, slice_requests
from slurm_jobs.plan.planned import Plan
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides.apply import source_of, steps_of


def unused_settings(
    before: RunSpec,
    spec: RunSpec,
    overrides: Sequence[str],
    plan: Plan,
    active: Mapping[str, Slices],
) -> tuple[str, ...]:
    """Return a note on each override that no job of `plan` uses.

    Args:
        before: the run's spec without the overrides.
        spec: the spec with them.
        overrides: as for `--set`, also those for single slices.
        plan: the jobs of the resume.
        active: slices that wait or run in earlier jobs, by stage.
    """
    old, new = before.model_dump(mode="json"), spec.model_dump(mode="json")
    plain = plain_overrides(overrides)
    notes = []
    for override in overrides:
        is_plain = override in plain
        slices = _stages_set(override, plan)
        if not is_plain:
            requests = slice_requests([override], plan.stages)
            slices = {name: frozenset(own) for name, own in requests.items()}
        if any(not slices.get(job.stage, frozenset()).isdisjoint(job.slices) for job in plan.jobs):
            continue
        setting = f"`{source_of(hidden_setting(override))}`"
        paths = [steps_of(override)]
        if paths[0][0] == "stages":  # under the name of a matrix, its combinations
            paths = [["stages", name, *paths[0][2:]] for name in slices]
        if is_plain and all(_value_at(old, path) == _value_at(new, path) for path in paths):
            notes.append(f"{setting} has no effect, because the run has this value already")
            continue
        named = " or ".join(f"`{name}`" for name in slices)
        note = f"{setting} is for later attempts: this resume submits no job of {named}"
        if any(active.get(name) for name in slices):
            note += ", and its jobs in the queue keep the value with which they were submitted"
        notes.append(note)
    return tuple(notes)


def _stages_set(override: str, plan: Plan) -> dict[str, Slices]:
    """Return all slices of the stages that an override is for; those of all for a common value."""
    steps = steps_of(override)
    return {
        stage.name: frozenset(range(stage.num_slices))
        for stage in plan.stages
        if steps[0] != "stages" or len(steps) < 2 or steps[1] in {stage.name, stage.origin}
    }


def _value_at(values: Any, path: Iterable[str]) -> Any:
    """Return the value at a path of keys and places in lists; None if there is none."""
    for step in path:
        if isinstance(values, list) and step.isdecimal() and int(step) < len(values):
            values = values[int(step)]
        else:
            values = values.get(step) if isinstance(values, dict) else None
    return values
