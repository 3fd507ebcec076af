"""Time and GPU-hours of a run for a list of runs: exact where that is cheap, else not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.json_values import is_count
from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_attempt, read_completion
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.run_status import RunStatus

_MOST_READ = 1_000
"""Most attempts of a run whose records are read, so that a list of runs takes no minutes."""
_MOST_APART_S = 60.0
"""Most seconds between a submit and the time of its file. If they are further apart, the folder is
a copy, or its file server has another clock."""
_LIVING = frozenset({"running", "waiting"})
_HOURS = "GPU h"
_NOT_STARTED = "no attempt has started"
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUse:
    """Time and GPUs that a run took."""

    duration_s: Quantity
    """From the submit to the last end of an attempt, or to now."""
    gpu_hours: Quantity
    """Time of its attempts times the GPUs that their jobs asked for."""
    problems: tuple[str, ...] = ()
    """Files that could not be read, with reasons."""


def run_use(
    run_dir: Path, run: RunRecords, status: RunStatus, answer: Answer, now_unix_s: float
) -> RunUse:
    """Return what a run took, from its records and the scheduler's answer about it.

    The attempts of stages without GPUs are not read, whatever their number.
    """
    paths = RunPaths(run_dir)
    problems: list[str] = []
    try:
        gpu_hours = _gpu_hours(paths, run, status, now_unix_s)
    except FileNotFoundError:
        gpu_hours = missing(_HOURS, "a record is missing")
    except _UNREADABLE as error:
        gpu_hours = missing(_HOURS, "a record cannot be read")
        problems.append(f"{run_dir.name}: its GPU-hours are not known: {error}")
    return RunUse(
        duration_s=_duration(paths, run, status, answer, now_unix_s),
        gpu_hours=gpu_hours,
        problems=tuple(problems),
    )


def _duration(
    paths: RunPaths, run: RunRecords, status: RunStatus, answer: Answer, now_unix_s: float
) -> Quantity:
    """Return the time from the submit to the last record of an end.

    A folder's time is that of its newest entry. Asking for it costs the same for any number of
    slices, and both times are of one clock, that of the file server.
    """
    submitted_unix_s = run.meta.created_unix_s
    if not any(records.attempts for records in run.records.values()):
        return missing("s", _NOT_STARTED)
    if status.status in _LIVING:
        return known(max(0.0, now_unix_s - submitted_unix_s), "s")
    written_unix_s = paths.run_json.stat().st_mtime
    if abs(written_unix_s - submitted_unix_s) > _MOST_APART_S:
        return missing("s", "its folder is a copy, whose files have other times")
    ends = [task.end_unix_s for task in answer.tasks.values() if task.end_unix_s is not None]
    ended = (stage for stage, records in run.records.items() if records.endings)
    ends += [paths.completions_dir(stage).stat().st_mtime for stage in ended]
    if not ends:
        return missing("s", "no record has the time of its end")
    return known(max(0.0, max(ends) - written_unix_s), "s")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """Attempt of a stage that used GPUs."""

    stage: str
    slice_index: int
    attempt: int


def _gpu_hours(paths: RunPaths, run: RunRecords, status: RunStatus, now_unix_s: float) -> Quantity:
    if not any(records.attempts for records in run.records.values()):
        return missing(_HOURS, _NOT_STARTED)
    gpus = _gpus_by_token(paths, run)
    stages = {intent.stage for intent in run.intents if gpus.get(intent.token)}
    attempts: list[_Attempt] = []
    for stage, records in run.records.items():
        if stage in stages:
            for index, numbers in records.attempts.items():
                attempts.extend(
                    _Attempt(stage=stage, slice_index=index, attempt=number) for number in numbers
                )
    if len(attempts) > _MOST_READ:
        return missing(_HOURS, f"it has over {_MOST_READ:,} attempts; `report` reads them")
    running = {
        _Attempt(stage=stage.stage.name, slice_index=part.slice_index, attempt=part.attempt)
        for stage in status.stages
        for part in stage.slices
        if part.status == "running"
    }
    gpu_s = 0.0
    reason = ""
    if not stages <= run.records.keys():
        reason = "a stage that the spec no longer has is not counted"
    for each in attempts:
        ending = run.records[each.stage].endings.get(each.slice_index, {}).get(each.attempt)
        if ending is not None:
            end = read_completion(paths, each.stage, ending)
            gpu_s += gpus.get(end.token, 0) * max(0.0, end.ended_unix_s - end.started_unix_s)
            continue
        start = read_attempt(paths, each.stage, each.slice_index, each.attempt)
        if start is None or each not in running:
            reason = "an attempt has no recorded end"
        else:
            gpu_s += gpus.get(start.token, 0) * max(0.0, now_unix_s - start.started_unix_s)
    return known(gpu_s / 3600, _HOURS, at_least=reason)


def _gpus_by_token(paths: RunPaths, run: RunRecords) -> Mapping[str, int]:
    """Return the GPUs of one job or array task, by its token; of stages with attempts alone."""
    begun = {stage for stage, records in run.records.items() if records.attempts}
    gpus = {}
    for intent in run.intents:
        if intent.job_id is not None and (intent.stage in begun or intent.stage not in run.records):
            path = paths.job_json(intent.token)
            resources = read_order(path).resources
            if not is_count(resources.nodes) or not is_count(resources.num_gpus):
                message = f"{path} is damaged: its nodes or GPUs are no counts"
                raise ValueError(message)
            gpus[intent.token] = resources.total_gpus
    return gpus
