"""Reader of a run folder: metadata, stages, records. Needs no spec model, so it is fast."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import damaged, last_json_number, names_in, read_json
from slurm_jobs.common.records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    attempt_from_json,
    completion_from_json,
    known_fields,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.run.intents import intents
from slurm_jobs.run.ledger import read_ledger, refuse_lost_ledger
from slurm_jobs.run.model import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.turns import open_command


def read_meta(paths: RunPaths) -> RunMeta:
    """Read who created the run, when, and with which scheduler.

    Raises:
        InputError: the folder is no run folder.
        DamagedFileError: its `run.json` has other content.
    """
    try:
        return RunMeta(**known_fields(RunMeta, read_json(paths.run_json)))
    except (TypeError, AttributeError) as error:  # missing fields, or no mapping
        raise damaged(paths.run_json, error) from error
    except FileNotFoundError as error:
        message = (
            f"{paths.run_dir} is no run folder (it has no run.json); `slurm-jobs runs` lists runs"
        )
        raise InputError(message) from error


def last_plan_number(paths: RunPaths) -> int:
    """Return the number of the newest plan; 0 if there is none."""
    return last_json_number(paths.plans_dir)


def read_plan_values(paths: RunPaths) -> Any:
    """Read the newest plan as JSON values.

    Raises:
        InputError: the run has no plan, because its submit was interrupted at the start.
    """
    number = last_plan_number(paths)
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
    stages = [_summary(values) for values in read_plan_values(paths)["stages"]]
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


def _summary(values: Mapping[str, Any]) -> StageSummary:
    partition = values.get("resources", {}).get("slurm", {}).get("partition", "")
    return StageSummary(**{**known_fields(StageSummary, values), "partition": str(partition)})


def _former_stages(
    paths: RunPaths, names: Sequence[str], present: Collection[str]
) -> list[StageSummary]:
    """Return those of these stages that only earlier plans have; their parents may be missing."""
    wanted = [name for name in names if name not in present]
    found: dict[str, StageSummary] = {}
    for number in range(last_plan_number(paths) - 1, 0, -1):
        if len(found) == len(wanted):
            break
        values = {v["name"]: v for v in read_json(paths.plan(number))["stages"]}
        found |= {n: _summary(values[n]) for n in wanted if n in values and n not in found}
    former: list[StageSummary] = []
    for stage in (found[name] for name in wanted if name in found):
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
    try:
        return attempt_from_json(read_json(paths.attempt(stage, slice_index, attempt)))
    except FileNotFoundError:
        return None


def read_completion(paths: RunPaths, stage: str, name: CompletionName) -> CompletionRecord:
    """Read one completion record."""
    return completion_from_json(read_json(paths.completion(stage, name)))
