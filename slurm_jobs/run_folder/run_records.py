"""Records of a run: who made it, its stages, its attempts and completions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.run_folder.ledger import Intent, intents, read_ledger, refuse_lost_ledger
from slurm_jobs.run_folder.orders import MOST_SLICES
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import open_command
from slurm_jobs.shared.errors import DamagedFileError, InputError
from slurm_jobs.shared.files import damaged, last_json_number, names_in, read_json
from slurm_jobs.shared.json_values import is_count, is_moment
from slurm_jobs.shared.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    attempt_from_json,
    completion_from_json,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.shared.records.record_json import known_fields

# Contents of a run folder as values.


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMeta:
    """`run.json`."""

    run_id: str
    name: str
    created_unix_s: float
    submitted_by: str
    host: str
    scheduler: str
    version: str
    spec_file: str
    max_cpus: int | None = None
    """Cores of the local scheduler."""
    cluster_name: str | None = None
    """Slurm's name of the cluster; None without Slurm, and in runs of earlier versions."""
    uid: int | None = None
    """Owner of the jobs; None in runs of earlier versions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """Stage with the facts that `status` needs."""

    name: str
    run: str
    num_slices: int
    is_array: bool
    retries: int
    fingerprint: str
    after: Mapping[str, str]
    """Kind of dependency by parent."""
    origin: str = ""
    """Name in the file, if the stage is one combination of a matrix; else empty."""
    partition: str = ""
    """Requested partitions; with several, Slurm gives the reason of the one that it tried last."""


def stages_called(name: str, origins: Mapping[str, str]) -> list[str]:
    """Return the stage of that name, or all combinations of the matrix stage of that name.

    Args:
        name: name that the user gave.
        origins: name in the file of each stage; empty if it is not a combination.
    """
    if name in origins:
        return [name]
    return [stage for stage, origin in origins.items() if origin and origin == name]


def stages_named(name: str, origins: Mapping[str, str], *, where: str = "") -> list[str]:
    """Return the same as `stages_called`, and raise if there is none.

    Args:
        name: name that the user gave.
        origins: see `stages_called`.
        where: start of the message, such as `--again fit: `.

    Raises:
        InputError: there is no such stage; the message names the nearest.
    """
    names = stages_called(name, origins)
    if not names:
        from slurm_jobs.shared.errors import did_you_mean  # slow, and rarely needed

        near = did_you_mean(name, [*origins, *filter(None, origins.values())])
        message = f"{where}no stage `{name}`{near} (stages: {', '.join(origins)})"
        raise InputError(message)
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecords:
    """Listing of a stage's record folders."""

    attempts: Mapping[int, tuple[int, ...]]
    """Attempt numbers by slice, ascending."""
    endings: Mapping[int, Mapping[int, CompletionName]]
    """Outcome and job of each attempt, by slice and attempt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecords:
    """Records of a run."""

    meta: RunMeta
    stages: tuple[StageSummary, ...]
    intents: tuple[Intent, ...]
    records: Mapping[str, StageRecords]
    is_submitting: bool = False
    """True if a command is submitting for this run now."""

    @property
    def jobs(self) -> dict[str, str]:
        """Return ids by name of all jobs that were ever submitted for this run, oldest first."""
        return submitted_jobs(self.intents)


def submitted_jobs(intents: Iterable[Intent]) -> dict[str, str]:
    """Return ids by name of those jobs among these intents that have one."""
    return {intent.job_name: intent.job_id for intent in intents if intent.job_id is not None}


# Reader of a run folder: metadata, stages, records. Needs no spec model, so it is fast.


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
