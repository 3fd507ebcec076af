"""Resume of a run from which `clean` removed files.

A complete stage stays complete without the files that were removed, so that a resume does not
repeat work of which only the result is needed. A stage that must run again needs its input.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from slurm_jobs.base.errors import InputError
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run_folder.cleanings import (
    Kind,
    read_cleanings,
    removed_of,
    removed_since,
    unfinished,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion, read_stage_records


def refuse_unfinished_clean(paths: RunPaths) -> None:
    """Raise InputError if a clean of the run was interrupted: half of a folder may be there."""
    if unfinished(read_cleanings(paths)) is not None:
        message = (
            f"a clean of {paths.run_dir.name} has not ended, so some of its files may be "
            f"incomplete: `slurm-jobs clean {shlex.quote(str(paths.run_dir))}` finishes it"
        )
        raise InputError(message)


def refuse_missing_input(paths: RunPaths, plan: Plan) -> None:
    """Raise if a stage would run again without the output of a complete stage that it reads.

    Raises:
        InputError: `clean` removed that output; the message names the options that make it again.
    """
    planned: dict[str, set[int]] = {}
    for job in plan.jobs:
        planned.setdefault(job.stage, set()).update(job.slices)
    reasons: dict[str, str] = {}
    """Why the output of a stage has to be made again, by the stage's name."""
    waiting = list(planned)
    while waiting:
        name = waiting.pop(0)
        for parent in (plan.stage(each.stage) for each in plan.stage(name).after):
            kept = set(range(parent.num_slices)) - planned.get(parent.name, set())
            kinds = _removed_kinds(paths, parent.name, kept)
            if kinds and parent.name not in reasons:
                reasons[parent.name] = (
                    f"`{name}` would run again, and reads the output of `{parent.name}`, whose "
                    f"{' and '.join(kinds)} `clean` removed"
                )
                waiting.append(parent.name)
    if not reasons:
        return
    first = [
        name
        for name in reasons
        if not any(parent.stage in reasons for parent in plan.stage(name).after)
    ]
    options = " ".join(f"--again {name}" for name in first)
    message = (
        f"{'; '.join(reasons.values())}: add `{options}`, which makes them again and runs all that "
        "comes after them"
    )
    raise InputError(message)


def _removed_kinds(paths: RunPaths, stage: str, slices: Iterable[int]) -> list[Kind]:
    """Return the kinds of a stage's output that `clean` removed since these slices were complete.

    Checkpoints and metrics are not read by other stages.
    """
    cleanings = read_cleanings(paths)
    if not cleanings:
        return []
    endings = read_stage_records(paths, stage).endings
    kinds: dict[Kind, None] = {}
    for index in slices:
        complete = [e for e in endings.get(index, {}).values() if e.outcome == "completed"]
        if complete:
            newest = max(complete, key=lambda ending: ending.attempt)
            ended_s = read_completion(paths, stage, newest).ended_unix_s
            kinds |= dict.fromkeys(r.kind for r in removed_since(cleanings, stage, ended_s))
    return [kind for kind in kinds if kind in {"parts", "data", "model"}]


def refuse_lost_metrics(paths: RunPaths) -> None:
    """Raise if a new report would replace one whose measurements `clean` has removed since.

    Raises:
        InputError: it would.
    """
    removed = {each.path for each in removed_of(paths)}
    timing = paths.run_dir / "timing"
    if timing.name in removed and not timing.exists() and paths.report_html.exists():
        message = (
            f"`clean` removed the step records of {paths.run_dir.name}, so a report cannot be made "
            f"from them again; the one made before is {paths.report_html}"
        )
        raise InputError(message)
