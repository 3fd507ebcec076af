"""Starting point of trainings with checkpoints after a resume.

When a training starts, it compares its config and its data with each checkpoint; this module
predicts the result as far as possible.
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
"""At step 0, because it was requested or the config differs; from its newest checkpoint; or
depending on its resolved config and data."""

_DATA = "dataset"
"""May change if the content of the data set is the same."""

_SETTLED_LATER = ("num_steps", "num_epochs", "phases", "batching.kind")
"""Fields whose resolved values the training compares: epochs as steps, `auto` as the choice."""


def training_starts(
    paths: RunPaths, plan: Plan, num_again: Mapping[str, Mapping[int, int]]
) -> Mapping[str, Start]:
    """Return the starting point of each planned training that has checkpoints.

    Args:
        paths: paths of the run.
        plan: plan of the resume.
        num_again: number of requests to run it again, including this one, by stage and slice.
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
    """Check for checkpoints of a training, or of its phases."""
    return any((output_dir / name).is_dir() for name in ("checkpoints", "phases"))


def start_of(before: Mapping[str, str], now: Mapping[str, str], *, is_asked: bool) -> Start:
    """Return where a training begins whose `fields` were `before` when it wrote its checkpoints.

    `is_asked`: a user has requested since to run all of it again.
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
    """Check whether a training with the `fields` `before` surely does not continue its checkpoints.

    With phases this is never sure: those before the change stay.
    """
    if not before.get("config.phases") == now.get("config.phases") == hash_of([]):
        return False
    changed = [key for key in {*before} & {*now} if before[key] != now[key]]
    same_epochs = before.get("config.num_epochs") == now.get("config.num_epochs")
    return ("config.num_steps" in changed and same_epochs) or any(map(_decides, changed))


def _decides(key: str) -> bool:
    """Check whether the training compares a field with its checkpoints literally."""
    room, _, name = key.partition(".")
    is_settled = room == "config" and name not in _SETTLED_LATER
    return is_settled and name.partition(".")[0] not in MAY_CHANGE


def _attempts(paths: RunPaths, stage: str) -> list[Mapping[str, Any]]:
    """Return the records of attempts at a stage without an array; empty for a damaged one."""
    numbers = read_stage_records(paths, stage).attempts.get(0, ())
    return [_attempt(paths, stage, number) for number in numbers]


def _attempt(paths: RunPaths, stage: str, number: int) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = read_json(paths.attempt(stage, 0, number))
    except DamagedFileError:  # an error here must not prevent a resume
        return {}
    return found


def _fields_of(paths: RunPaths, stage: str, fingerprint: str) -> Mapping[str, str]:
    """Return the fields of a stage's fingerprint; empty if no plan has it."""
    for number in range(last_plan_number(paths), 0, -1):
        for values in read_json(paths.plan(number))["stages"]:
            if (values["name"], values["fingerprint"]) == (stage, fingerprint):
                fields: Mapping[str, str] = values.get("fields", {})
                return fields
    return {}
