"""Reader of a run's records; no decisions.

A file that cannot be read becomes a problem that the report names, because reports on broken runs
are needed most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_jobs.common.files import read_json
from slurm_jobs.common.hidden import hidden_values
from slurm_jobs.common.records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
    attempt_from_json,
    completion_from_json,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.common.truncation import truncated, truncated_values
from slurm_jobs.probes.reading import newest_probes
from slurm_jobs.report.inputs.provenance import (
    read_nodes,
    read_pythons,
    read_secrets,
    read_submissions,
    shown_completions,
    shown_spec,
)
from slurm_jobs.report.inputs.records import ReportInputs, StageInputs
from slurm_jobs.report.inputs.results import PREPROCESS_RUN, sound_result
from slurm_jobs.report.inputs.timings import (
    list_files,
    read_profiles,
    read_readings,
    read_timings,
)
from slurm_jobs.run.intents import Entry, intents
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.turns import open_command
from slurm_jobs.schedulers.protocol import Answer


def read_inputs(
    paths: RunPaths,
    accounting: Sequence[TaskAccounting],
    answer: Answer | None = None,
    *,
    whole: bool = False,
) -> ReportInputs:
    """Read the records of the run, after its scheduler was queried.

    Args:
        paths: paths of the run.
        accounting: rows of the scheduler's accounting.
        answer: current answer of the scheduler, as for `status`.
        whole: leave the step records as their files have them, with fields that no report uses.

    Raises:
        FileNotFoundError: `paths` is no run (it lacks `run.json` or the resolved spec).
    """
    problems: list[str] = []
    spec = read_json(paths.resolved_spec)
    secrets = read_secrets(paths, spec)
    stages = _read_stages(paths, spec["stages"], secrets, problems, whole=whole)
    ledger = _read_ledger(paths, problems)
    profile = _read_profile(paths)
    return ReportInputs(
        run=read_json(paths.run_json),
        spec=shown_spec(spec, secrets),
        stages=stages,
        intents=tuple(intents(ledger)) if ledger is not None else None,
        accounting=tuple(accounting),
        answer=answer if answer is not None and answer.asked_unix_s else None,
        is_submitting=ledger is not None and open_command(ledger) is not None,
        submissions=read_submissions(paths, problems),
        pythons=read_pythons(paths, problems),
        probes=newest_probes(paths.run_dir.parent, problems),
        read_unix_s=time.time(),
        problems=tuple(map(truncated, problems)),
        profile=hidden_values(profile, secrets),
        price=_price(profile),
    )


def _read_stages(
    paths: RunPaths,
    current: Mapping[str, Any],
    secrets: frozenset[str],
    problems: list[str],
    *,
    whole: bool,
) -> tuple[StageInputs, ...]:
    """Return the stages of the spec, and those that only earlier plans have."""
    former = _former_stages(paths, current, problems)
    listed = {**current, **former}
    return tuple(
        replace(
            _read_stage(paths, name, listed[name], secrets, problems, whole=whole),
            is_former=name in former,
        )
        for name in parents_first(listed)
    )


def _price(profile: Mapping[str, Any]) -> Mapping[str, Any] | None:
    price = profile.get("price")
    return price if isinstance(price, Mapping) else None


def _read_profile(paths: RunPaths) -> Mapping[str, Any]:
    """Return the profile; runs of older versions have none."""
    try:
        profile = read_json(paths.spec_origin)["profile"]
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return profile if isinstance(profile, Mapping) else {}


def parents_first(stages: Mapping[str, Any]) -> list[str]:
    """Return the stages with parents first; by name if the order is open.

    A parent that has been removed is ignored.
    """
    ordered: list[str] = []
    while len(ordered) < len(stages):
        ready = [
            name
            for name in sorted(stages)
            if name not in ordered
            and all(p in ordered or p not in stages for p in stages[name].get("after") or ())
        ]
        assert ready, "a spec's stages cannot wait for each other in a circle"
        ordered.extend(ready)
    return ordered


def _former_stages(
    paths: RunPaths, current: Mapping[str, Any], problems: list[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the stages that only earlier plans have, each from the newest of those."""
    former: dict[str, Mapping[str, Any]] = {}
    for path in sorted(paths.plans_dir.glob("[0-9]*.json")):
        try:
            planned = {stage["name"]: _planned(stage) for stage in read_json(path)["stages"]}
        except (OSError, ValueError, TypeError, KeyError) as error:
            problems.append(f"{path}: not read as a plan: {error}")
            continue
        former |= {name: stage for name, stage in planned.items() if name not in current}
    return former


def _planned(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a stage of a plan to the form of the resolved spec."""
    array = {"num_slices": stage["num_slices"]} if stage["is_array"] else None
    return {
        "run": stage["run"],
        "after": stage["after"],
        "array": array,
        "resources": stage.get("resources"),
    }


def _read_stage(
    paths: RunPaths,
    name: str,
    stage: Mapping[str, Any],
    secrets: frozenset[str],
    problems: list[str],
    *,
    whole: bool,
) -> StageInputs:
    array = stage.get("array")
    attempts = _read_attempts(paths.attempts_dir(name), problems)
    is_preprocessing = stage.get("run") == PREPROCESS_RUN
    completions = _read_completions(
        paths.completions_dir(name), problems, is_preprocessing=is_preprocessing
    )
    return StageInputs(
        name=name,
        run=stage.get("run") or "shell",
        after=stage.get("after") or {},
        num_slices=int(array["num_slices"]) if array else 1,
        resources=stage.get("resources") or {},
        attempts=attempts,
        completions=shown_completions(completions, secrets),
        timings=read_timings(paths.timing_stage_dir(name), problems, whole=whole),
        nodes=read_nodes(paths, attempts, problems),
        profiles=read_profiles(paths.timing_stage_dir(name), problems),
        readings=read_readings(paths.timing_stage_dir(name), problems),
        config=stage.get("config") or {},
    )


def _read_ledger(paths: RunPaths, problems: list[str]) -> list[Entry] | None:
    try:
        entries = read_ledger(paths.ledger_dir)
        intents(entries)
    except (OSError, ValueError, TypeError, KeyError) as error:
        problems.append(f"{paths.ledger_dir}: not read as a ledger: {error}")
        return None
    return entries


def _read_attempts(folder: Path, problems: list[str]) -> tuple[AttemptRecord, ...]:
    found = []
    for path in list_files(folder):
        if parse_attempt_name(path.name) is None:
            continue
        try:
            found.append(attempt_from_json(read_json(path)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            problems.append(f"{path}: not read as an attempt record: {error}")
    return tuple(sorted(found, key=lambda a: (a.slice_index, a.attempt)))


def _read_completions(
    folder: Path, problems: list[str], *, is_preprocessing: bool
) -> tuple[CompletionRecord, ...]:
    found = []
    for path in list_files(folder):
        if parse_completion_name(path.name) is None:
            continue
        try:
            record = completion_from_json(read_json(path))
        except (OSError, ValueError, TypeError, KeyError) as error:
            problems.append(f"{path}: not read as a completion record: {error}")
            continue
        if not isinstance(record.result, Mapping):  # a user's stage may return anything
            kind = type(record.result).__name__
            problems.append(f"{path}: its result is no mapping ({kind}), and is left out")
            record = replace(record, result={})
        result = sound_result(record.result, is_preprocessing=is_preprocessing)
        if result != record.result:
            problems.append(f"{path}: its result has values that are damaged; they are left out")
            record = replace(record, result=result)
        found.append(replace(record, result=truncated_values(record.result)))
    return tuple(sorted(found, key=lambda c: (c.slice_index, c.attempt)))
