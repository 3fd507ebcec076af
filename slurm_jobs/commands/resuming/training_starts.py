"""Starting point of trainings with checkpoints after a resume.

When a training starts, it compares its config and its data with each checkpoint. This module
predicts the result as far as possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.configs.train import MAY_CHANGE
from slurm_jobs.plan.fingerprints import hash_of
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.earlier_fields import EarlierFields
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_all_plans, read_stage_records

Start = Literal["requested", "changed", "removed", "continues", "depends"]
"""At step 0, because it was requested, the config differs, or the checkpoints of the complete
training were removed; from its newest checkpoint; or depending on its resolved config and data."""

_DATA = "dataset"
"""May change if the content of the data set is the same."""

_SETTLED_LATER = ("num_steps", "num_epochs", "phases", "batching.kind")
"""Fields whose resolved values the training compares: epochs as steps, `auto` as the choice."""


def training_starts(
    paths: RunPaths, plan: Plan, num_again: Mapping[str, Mapping[int, int]]
) -> Mapping[str, Start]:
    """Return the starting point of each planned training that has checkpoints, also of phases.

    `num_again` has the number of requests to run it again, including this one, by stage and slice.
    """
    starts: dict[str, Start] = {}
    earlier = EarlierFields(read_all_plans(paths))
    run_again = dict.fromkeys(job.stage for job in plan.jobs)
    for name in run_again:
        stage, output_dir = plan.stage(name), paths.output_dir(name)
        if stage.run != "train":
            continue
        if _has_lost_checkpoints(paths, name):
            starts[name] = "removed"
            continue
        folders = (output_dir / "checkpoints", output_dir / "phases")
        if not any(folder.is_dir() for folder in folders):
            continue
        attempts: list[Mapping[str, Any]] = [{}]
        for number in read_stage_records(paths, name).attempts.get(0, ()):
            try:
                attempts.append(read_json(paths.attempt(name, 0, number)))
            except DamagedFileError:  # an error here must not prevent a resume
                attempts.append({})
        befores = [earlier.of(name, each.get("fingerprint", "")) for each in attempts]
        is_asked = attempts[-1].get("num_again", 0) != num_again.get(name, {}).get(0, 0)
        follows = any(parent.stage in run_again for parent in stage.after)
        if is_asked or follows or befores[-1] != stage.fields:
            start = start_of(befores[-1], stage.fields, is_asked=is_asked)
            # A checkpoint may be of any attempt.
            is_other = all(learns_differently(each, stage.fields) for each in befores[1:])
            is_changed = start == "depends" and len(befores) > 1 and is_other
            starts[name] = "changed" if is_changed else start
    return starts


def _has_lost_checkpoints(paths: RunPaths, stage: str) -> bool:
    """Check whether a training was complete, after which its last step's checkpoint was removed."""
    endings = read_stage_records(paths, stage).endings.get(0, {}).values()
    output_dir = paths.output_dir(stage)
    roots = [output_dir / "checkpoints", *output_dir.glob("phases/*/checkpoints")]
    return any(ending.outcome == "completed" for ending in endings) and not any(
        next(root.glob("step-*"), None) for root in roots
    )


def start_of(before: Mapping[str, str], now: Mapping[str, str], *, is_asked: bool) -> Start:
    """Return where a training begins whose `fields` were `before` when it wrote its checkpoints.

    `is_asked`: a user has since requested to run all of it again.
    """
    if is_asked:
        return "requested"
    changed = [key for key in {*before, *now} if before.get(key) != now.get(key)]
    free = {*MAY_CHANGE} - {_DATA}
    are_all_free = all(
        section == "environment" or (section == "config" and name.partition(".")[0] in free)
        for section, _, name in (key.partition(".") for key in changed)
    )
    return "continues" if changed and are_all_free else "depends"


def learns_differently(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Check whether a training with the fields `now` certainly cannot continue from `before`.

    With phases this is never certain: those before the change stay.
    """
    if not before.get("config.phases") == now.get("config.phases") == hash_of([]):
        return False
    changed = [key for key in {*before} & {*now} if before[key] != now[key]]
    same_epochs = before.get("config.num_epochs") == now.get("config.num_epochs")
    if "config.num_steps" in changed and same_epochs:
        return True
    names = [key.removeprefix("config.") for key in changed if key.startswith("config.")]
    compared = [name for name in names if name not in _SETTLED_LATER]  # literally
    return any(name.partition(".")[0] not in MAY_CHANGE for name in compared)
