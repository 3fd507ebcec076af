"""Records of a run: who made it, its stages, its attempts and completions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import DamagedFileError, InputError
from slurm_jobs.base.files import damaged, last_json_number, names_in, read_json
from slurm_jobs.base.json_values import is_count, is_moment
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    attempt_from_json,
    completion_from_json,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.formats.records.record_json import known_fields
from slurm_jobs.run_folder.ledger import intents, read_ledger, refuse_lost_ledger
from slurm_jobs.run_folder.orders import MOST_SLICES
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.run_folder.submission_lock import open_command


def read_meta(paths: RunPaths) -> RunMeta:
    """Read who created the run, when, and with which scheduler.

    Raises:
        InputError: the folder is not a run folder.
        DamagedFileError: its `run.json` has other content.
    """
    try:
        meta = RunMeta(**known_fields(RunMeta, read_json(paths.run_json)))
        _refuse_odd_values(meta)
    except (TypeError, AttributeError) as error:  # missing fields, or no mapping
        raise damaged(paths.run_json, error) from error
    except FileNotFoundError as error:
        message = f"{paths.run_dir} is not a run folder (no run.json); `slurm-jobs runs` lists runs"
        raise InputError(message) from error
    return meta


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or isinstance(value, str),
    "float": is_moment,
    "int | None": lambda value: value is None or is_count(value),
}


def _refuse_odd_values(meta: RunMeta) -> None:
    """Raise TypeError on a value of another type: one run would break the list of all runs."""
    for field in dataclasses.fields(meta):
        value = getattr(meta, field.name)
        if not _KINDS[str(field.type)](value):
            message = f"its `{field.name}` is {value!r:.40}"
            raise TypeError(message)
    if meta.scheduler not in {"slurm", "local"}:
        message = f"its `scheduler` is {meta.scheduler!r:.40}"
        raise TypeError(message)


def last_plan_number(paths: RunPaths) -> int:
    """Return the number of the newest plan; 0 if there is none."""
    return last_json_number(paths.plans_dir)


def read_all_plans(paths: RunPaths) -> list[Any]:
    """Read all plans as JSON values, the oldest first."""
    return [read_json(paths.plan(number)) for number in range(1, last_plan_number(paths) + 1)]


def read_plan_values(paths: RunPaths) -> Any:
    """Read the newest plan as JSON values.

    Raises:
        InputError: the run has no plan, because its submit was interrupted at the start.
    """
    number = last_plan_number(paths)
    if number == 0 and paths.cleaned.exists():
        message = (
            f"{paths.run_dir} has no plan: its removal was interrupted; `slurm-jobs clean "
            f"{paths.run_dir}` finishes it"
        )
        raise InputError(message)
    if number == 0:
        message = f"{paths.run_dir} has no plan: its submit was cut off; submit the spec again"
        raise InputError(message)
    return read_json(paths.plan(number))


def read_shell_variables(paths: RunPaths) -> dict[str, str] | None:
    """Return SBATCH_... variables that set an option of the run's jobs; None if not recorded."""
    recorded: dict[str, str] | None = read_plan_values(paths).get("shell_variables")
    return recorded


def read_run(run_dir: Path, *, also: Sequence[str] = ()) -> RunRecords:
    """Read everything that `status` needs, in a few directory listings.

    Args:
        run_dir: the run's folder.
        also: further stages that only earlier plans have, each after its parents; their last plan
            describes them.
    """
    paths = RunPaths(run_dir)
    meta = read_meta(paths)
    refuse_lost_ledger(paths)
    entries = read_ledger(paths.ledger_dir)
    stages = _planned_stages(paths, read_plan_values(paths))
    stages += _former_stages(paths, also, {stage.name for stage in stages})
    records = {stage.name: read_stage_records(paths, stage.name) for stage in stages}
    paths.run_json.stat()  # a folder that vanished meanwhile would look like one without records
    return RunRecords(
        meta=meta,
        stages=tuple(stages),
        intents=tuple(intents(entries)),
        records=records,
        is_submitting=open_command(entries) is not None,
    )


_FOLDER_NAME = re.compile(r"[^./\0][^/\0]*")
_MOST_SLICES_OF_RUN = 4 * MOST_SLICES


def _planned_stages(paths: RunPaths, plan: Any) -> list[StageSummary]:
    """Return the stages of a plan.

    Raises:
        DamagedFileError: its values are none that a submit writes. Another user's plan with a
            million million slices would take this user's memory.
    """
    stages: dict[str, StageSummary] = {}
    num_slices = 0
    try:
        for values in plan["stages"]:
            stage = _summary(values)
            num_slices += stage.num_slices
            is_sound = (
                isinstance(stage.name, str)
                and _FOLDER_NAME.fullmatch(stage.name)
                and stage.name not in stages
                and is_count(stage.num_slices)
                and num_slices <= _MOST_SLICES_OF_RUN
                and isinstance(stage.origin, str)
                and isinstance(stage.run, str)
                and stages.keys() >= stage.after.keys()
            )
            if not is_sound:
                message = f"its stage {stage.name!r:.60} has values that no submit writes"
                raise ValueError(message)
            stages[stage.name] = stage
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(paths.plan(last_plan_number(paths)), error) from error
    return list(stages.values())


def _summary(values: Mapping[str, Any]) -> StageSummary:
    partition = values.get("resources", {}).get("slurm", {}).get("partition", "")
    return StageSummary(**{**known_fields(StageSummary, values), "partition": str(partition)})


def _former_stages(
    paths: RunPaths, names: Sequence[str], present: Collection[str]
) -> list[StageSummary]:
    """Return those of these stages that only earlier plans have; their parents may be missing."""
    wanted = [name for name in names if name not in present]
    summaries: dict[str, StageSummary] = {}
    for number in range(last_plan_number(paths) - 1, 0, -1):
        if len(summaries) == len(wanted):
            break
        values = {v["name"]: v for v in read_json(paths.plan(number))["stages"]}
        summaries |= {n: _summary(values[n]) for n in wanted if n in values and n not in summaries}
    former: list[StageSummary] = []
    for stage in (summaries[name] for name in wanted if name in summaries):
        known = {*present, *(s.name for s in former)}
        after = {name: kind for name, kind in stage.after.items() if name in known}
        former.append(dataclasses.replace(stage, after=after))
    return former


def read_stage_records(paths: RunPaths, stage: str) -> StageRecords:
    """Return attempts of a stage and their outcomes, from two directory listings."""
    attempts: dict[int, list[int]] = {}
    for name in names_in(paths.attempts_dir(stage)):
        attempt = parse_attempt_name(name)
        if attempt is not None:
            attempts.setdefault(attempt[0], []).append(attempt[1])
    endings: dict[int, dict[int, CompletionName]] = {}
    for name in names_in(paths.completions_dir(stage)):
        ending = parse_completion_name(name)
        if ending is not None:
            endings.setdefault(ending.slice_index, {})[ending.attempt] = ending
    return StageRecords(
        attempts={index: tuple(sorted(numbers)) for index, numbers in attempts.items()},
        endings=endings,
    )


def read_attempt(
    paths: RunPaths, stage: str, slice_index: int, attempt: int
) -> AttemptRecord | None:
    """Return the record that an attempt started; None if there is none."""
    path = paths.attempt(stage, slice_index, attempt)
    try:
        return attempt_from_json(read_json(path))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise _named(path, error) from error


def read_completion(paths: RunPaths, stage: str, name: CompletionName) -> CompletionRecord:
    """Read one completion record."""
    path = paths.completion(stage, name)
    try:
        return completion_from_json(read_json(path))
    except (ValueError, TypeError, KeyError) as error:
        raise _named(path, error) from error


def _named(path: Path, error: Exception) -> DamagedFileError:
    return error if isinstance(error, DamagedFileError) else damaged(path, error)
