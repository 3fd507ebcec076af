"""Reader of a run's records; no decisions.

A file that cannot be read becomes a problem that the report names, because reports on broken runs
are needed most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import DamagedFileError, FileError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.redact import hidden_text, hidden_values
from slurm_jobs.base.texts.truncation import truncated, truncated_values
from slurm_jobs.formats.records.attempt_records import (
    CompletionRecord,
    TaskAccounting,
    attempt_from_json,
    completion_from_json,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.nodes.probe.probe_reader import newest_probes
from slurm_jobs.report.inputs.provenance_records import (
    read_nodes,
    read_pythons,
    read_secrets,
    read_submissions,
    shown_spec,
)
from slurm_jobs.report.inputs.record_files import UNREADABLE, list_files, read_each
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.inputs.stage_results import PREPROCESS_RUN, sound_result
from slurm_jobs.report.inputs.timing_records import read_profiles, read_readings, read_timings
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_meta, read_run
from slurm_jobs.run_folder.run_values import RunRecords
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
        FileNotFoundError: `paths` is not a run (it lacks `run.json` or the resolved spec).
    """
    problems: list[str] = []
    spec = read_resolved_values(paths)
    if paths.run_json.exists():
        read_meta(paths)  # refuses values that no submit writes
    secrets = read_secrets(paths, spec)
    former = _former_stages(paths, spec["stages"], problems)
    listed = {**spec["stages"], **former}
    names = parents_first(listed)
    records = _read_records(paths, [name for name in names if name in former], problems)
    stages = tuple(
        replace(
            _read_stage(paths, name, listed[name], secrets, problems, whole=whole),
            is_former=name in former,
        )
        for name in names
    )
    profile: Mapping[str, Any] = {}
    with suppress(*UNREADABLE):  # runs of older versions have none
        stored = read_json(paths.spec_origin)["profile"]
        profile = stored if isinstance(stored, Mapping) else {}
    price = profile.get("price")
    return ReportInputs(
        run=read_json(paths.run_json),
        spec=shown_spec(spec, secrets),
        stages=stages,
        records=records,
        accounting=tuple(accounting),
        answer=answer if answer is not None and answer.asked_unix_s else None,
        submissions=read_submissions(paths, problems),
        pythons=read_pythons(paths, problems),
        probes=newest_probes(paths.run_dir.parent, problems),
        read_unix_s=time.time(),
        problems=tuple(map(truncated, problems)),
        profile=hidden_values(profile, secrets),
        price=price if isinstance(price, Mapping) else None,
    )


def parents_first(stages: Mapping[str, Any]) -> list[str]:
    """Return the stages with parents first; otherwise in the order of the spec.

    A parent that has been removed is ignored.
    """
    ordered: list[str] = []
    while len(ordered) < len(stages):
        ready = [
            name
            for name in stages
            if name not in ordered
            and all(p in ordered or p not in stages for p in stages[name].get("after") or ())
        ]
        if not ready:
            message = (
                "the stages in the run's plans wait for each other, so a file in plans/ is "
                "damaged: restore it from a backup or snapshot of its file system"
            )
            raise DamagedFileError(message)
        ordered.extend(ready)
    return ordered


def _former_stages(
    paths: RunPaths, current: Mapping[str, Any], problems: list[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the stages that only earlier plans have, each from the newest of those."""
    plans = read_each(sorted(paths.plans_dir.glob("[0-9]*.json")), _planned, problems, "a plan")
    stages: dict[str, Mapping[str, Any]] = {}
    for _, planned in plans:
        stages.update(planned)
    return {name: stage for name, stage in stages.items() if name not in current}


def _planned(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Convert the stages of a plan to the form of the resolved spec."""
    return {
        stage["name"]: {
            "run": stage["run"],
            "after": stage["after"],
            "array": {"num_slices": stage["num_slices"]} if stage["is_array"] else None,
            "resources": stage.get("resources"),
        }
        for stage in plan["stages"]
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
    files = [f for f in list_files(paths.attempts_dir(name)) if parse_attempt_name(f.name)]
    records = read_each(files, attempt_from_json, problems, "an attempt record")
    attempts = sorted((a for _, a in records), key=lambda a: (a.slice_index, a.attempt))
    completions = _read_completions(
        paths.completions_dir(name),
        secrets,
        problems,
        is_preprocessing=stage.get("run") == PREPROCESS_RUN,
    )
    return StageInputs(
        name=name,
        run=stage.get("run") or "shell",
        after=stage.get("after") or {},
        num_slices=int(array["num_slices"]) if array else 1,
        resources=stage.get("resources") or {},
        attempts=tuple(attempts),
        completions=completions,
        timings=read_timings(paths.timing_stage_dir(name), problems, whole=whole),
        nodes=read_nodes(paths, attempts, problems),
        profiles=read_profiles(paths.timing_stage_dir(name), problems),
        readings=read_readings(paths.timing_stage_dir(name), problems),
        config=stage.get("config") or {},
    )


def _read_records(paths: RunPaths, former: Sequence[str], problems: list[str]) -> RunRecords | None:
    try:
        return read_run(paths.run_dir, also=former)
    except (*UNREADABLE, FileError) as error:
        problems.append(f"completion records alone decide what is done, because {error}")
        return None


def _read_completions(
    folder: Path, secrets: frozenset[str], problems: list[str], *, is_preprocessing: bool
) -> tuple[CompletionRecord, ...]:
    """Return the records without invalid results, and without secrets in their reasons."""
    completions = []
    files = [path for path in list_files(folder) if parse_completion_name(path.name)]
    for path, record in read_each(files, completion_from_json, problems, "a completion record"):
        result: Any = record.result
        if not isinstance(result, Mapping):  # a user's stage may return anything
            kind = type(result).__name__
            problems.append(f"{path}: its result is not a mapping ({kind}), and is left out")
            result = {}
        valid = sound_result(result, is_preprocessing=is_preprocessing)
        if record.result_note is not None:
            problems.append(f"{path}: {hidden_text(record.result_note, secrets)}")
        if valid != result:
            problems.append(f"{path}: its result has values that are damaged; they are left out")
        reason = hidden_text(record.full_reason, secrets)
        valid = truncated_values(valid)
        completions.append(replace(record, result=valid, reason=reason, last_line=None))
    return tuple(sorted(completions, key=lambda c: (c.slice_index, c.attempt)))
