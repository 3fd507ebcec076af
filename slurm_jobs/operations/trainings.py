"""What a resume means for a training that has checkpoints: where does it begin?

The training itself compares what it learns and its data with each checkpoint
when it starts; here is told what can be known of that before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.common.errors import DamagedFileError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.stage_config.train import MAY_CHANGE
from slurm_jobs.plan import Plan
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import last_plan_number, read_stage_records

Start = Literal["anew", "goes on", "depends"]
"""At step 0; from its newest checkpoint; or as what it learns and its data turn out to be."""

_DATA = "dataset"
"""May change, but only where the data set's content is the same."""


def training_starts(
    paths: RunPaths, plan: Plan, num_again: Mapping[str, Mapping[int, int]]
) -> Mapping[str, Start]:
    """Where each training of the plan's jobs begins that has checkpoints and is not just missing.

    Args:
        paths: of the run.
        plan: of the resume.
        num_again: by stage and slice, how often it was asked for again, this time included.
    """
    found: dict[str, Start] = {}
    for name in dict.fromkeys(job.stage for job in plan.jobs):
        stage = plan.stage(name)
        if stage.run != "train" or not _has_checkpoints(paths.output_dir(name)):
            continue
        last = _last_attempt(paths, name)
        before = _fields_of(paths, name, last.get("fingerprint", ""))
        is_asked = last.get("num_again", 0) != num_again.get(name, {}).get(0, 0)
        follows = any(job.why.startswith("comes after") for job in plan.jobs if job.stage == name)
        if is_asked or follows or before != stage.fields:
            found[name] = start_of(before, stage.fields, is_asked=is_asked)
    return found


def _has_checkpoints(output_dir: Path) -> bool:
    """Of a training, or of the phases of one."""
    return any((output_dir / name).is_dir() for name in ("checkpoints", "phases"))


def start_of(before: Mapping[str, str], now: Mapping[str, str], *, is_asked: bool) -> Start:
    """Where a training begins whose `fields` were `before` when it wrote its checkpoints.

    `is_asked`: somebody has asked since for all of it.
    """
    if is_asked:
        return "anew"
    changed = [key for key in {*before, *now} if before.get(key) != now.get(key)]
    return "goes on" if changed and all(map(_may_change, changed)) else "depends"


def _may_change(key: str) -> bool:
    room, _, name = key.partition(".")
    field = name.partition(".")[0]
    return room == "environment" or (room == "config" and field in MAY_CHANGE and field != _DATA)


def _last_attempt(paths: RunPaths, stage: str) -> Mapping[str, Any]:
    """The record of the newest attempt at a stage without an array; empty if none can be read."""
    attempts = read_stage_records(paths, stage).attempts.get(0, ())
    try:
        found: Mapping[str, Any] = read_json(paths.attempt(stage, 0, attempts[-1]))
    except (IndexError, DamagedFileError):  # what is told here must not end a resume
        return {}
    return found


def _fields_of(paths: RunPaths, stage: str, fingerprint: str) -> Mapping[str, str]:
    """What decided a stage's work of that fingerprint; empty if no plan says."""
    for number in range(last_plan_number(paths), 0, -1):
        for values in read_json(paths.plan(number))["stages"]:
            if (values["name"], values["fingerprint"]) == (stage, fingerprint):
                fields: Mapping[str, str] = values.get("fields", {})
                return fields
    return {}
