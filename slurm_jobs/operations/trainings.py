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
from slurm_jobs.fingerprints import hash_of
from slurm_jobs.plan import Plan
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import last_plan_number, read_stage_records

Start = Literal["anew", "changed", "goes on", "depends"]
"""At step 0, as it was asked for or because it learns otherwise; from its newest checkpoint; or as
what it learns and its data turn out to be."""

_DATA = "dataset"
"""May change, but only where the data set's content is the same."""

_SETTLED_LATER = ("num_steps", "num_epochs", "phases", "batching.kind")
"""Fields whose values the training compares as it has settled them: epochs as steps, `auto` as what
was chosen."""


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
        attempts = _attempts(paths, name)
        last = attempts[-1] if attempts else {}
        befores = [_fields_of(paths, name, each.get("fingerprint", "")) for each in attempts]
        before = befores[-1] if befores else {}
        is_asked = last.get("num_again", 0) != num_again.get(name, {}).get(0, 0)
        follows = any(job.why.startswith("comes after") for job in plan.jobs if job.stage == name)
        if is_asked or follows or before != stage.fields:
            start = start_of(before, stage.fields, is_asked=is_asked)
            # A checkpoint may be of any attempt.
            is_other = befores and all(learns_otherwise(each, stage.fields) for each in befores)
            found[name] = "changed" if start == "depends" and is_other else start
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


def learns_otherwise(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether checkpoints of a training whose `fields` were `before` are surely not continued.

    Of a training with phases nothing is sure: those that come before what has changed stay.
    """
    if not before.get("config.phases") == now.get("config.phases") == hash_of([]):
        return False
    changed = [key for key in {*before} & {*now} if before[key] != now[key]]
    same_epochs = before.get("config.num_epochs") == now.get("config.num_epochs")
    return ("config.num_steps" in changed and same_epochs) or any(map(_decides, changed))


def _decides(key: str) -> bool:
    """Whether the training compares the value of a field with that of its checkpoints, as it is."""
    room, _, name = key.partition(".")
    is_settled = room == "config" and name not in _SETTLED_LATER
    return is_settled and name.partition(".")[0] not in MAY_CHANGE


def _attempts(paths: RunPaths, stage: str) -> list[Mapping[str, Any]]:
    """The records of the attempts at a stage without an array; empty in place of a damaged one."""
    numbers = read_stage_records(paths, stage).attempts.get(0, ())
    return [_attempt(paths, stage, number) for number in numbers]


def _attempt(paths: RunPaths, stage: str, number: int) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = read_json(paths.attempt(stage, 0, number))
    except DamagedFileError:  # what is told here must not end a resume
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
