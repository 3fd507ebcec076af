"""What is wrong with a run, why, and what to type next."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import command_text, shown_path
from slurm_jobs.cli.log_files import failure_log, has_explaining_log, last_lines, rank_logs
from slurm_jobs.common.errors import DamagedFileError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.common.records import CompletionRecord
from slurm_jobs.common.rows_in_progress import rows_in_progress
from slurm_jobs.common.truncation import truncated
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_completion
from slurm_jobs.schedulers.states import NEVER, Wait

if TYPE_CHECKING:
    from slurm_jobs.reconcile import RunStatus, SliceStatus, StageStatus

MAX_PROBLEMS_SHOWN = 10
_RESUMES = re.compile(
    r"`slurm-jobs resume (?:(?! --set )[^`])+((?: --set \S+=(?![A-Z]+[ `])[^\s`]+)+)`"
)
"""With what a reason says that has to be set; a value in capitals is one to be chosen."""
_MORE_MEMORY = 1.5
"""Factor that is offered after a stage ran out of memory."""
MAX_NOTES_READ = 100
"""Records of completed slices that one look opens; the report has the notes of all."""
MAX_TAIL_LINES = 8
"""Of a failed task's log; a Python traceback's end fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One slice that failed."""

    line: str
    """Which, how Slurm called it, and why."""
    log: Path | None = None
    tail: tuple[str, ...] = ()
    """The last lines of its log."""


FailedAttempt = tuple[str, int, str | None, int]
"""Stage, slice, job and attempt: a slice that fails again, after a resume, is another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFailures:
    """Slices that failed since somebody was told."""

    attempts: frozenset[FailedAttempt] = frozenset()
    lines: tuple[str, ...] = ()
    """One each, as many as are shown, and how many more there are."""


NO_NEW_FAILURES = NewFailures()


def source_lines(status: RunStatus) -> list[str]:
    """Who could not be asked, and what this cluster never tells."""
    silent = [f"could not be asked: {problem}" for problem in status.problems]
    return [*silent, *(f"note: {note}" for note in status.notes)]


def problem_lines(run_dir: Path, status: RunStatus, *, with_logs: bool = False) -> list[str]:
    """What failed, where and why, `with_logs` where its log lies, and what to type next."""
    lines = source_lines(status)
    failed = [
        (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status in {"failed", "unknown", "cancelled"}
    ]
    lines += _shortened(run_dir, failed, where_all_are="--json has all", with_logs=with_logs)
    barred = [stage.stage.name for stage in status.stages if _is_barred_for_nothing(stage, status)]
    lines += [
        f"{name} stranded: what it comes after is complete by its records, failed for the scheduler"
        for name in barred
    ]
    lines += _stuck_lines(status)
    notes = completed_notes(run_dir, status)
    for (name, index), note in list(notes.items())[:MAX_PROBLEMS_SHOWN]:
        part = f" slice {index}" if status.stage(name).stage.is_array else ""
        lines.append(f"{name}{part} completed, with a note: {note}")
    if len(notes) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(notes) - MAX_PROBLEMS_SHOWN} more notes; --json has them")
    lines += _ways_on(run_dir, status, failed, is_barred=bool(barred))
    return lines


def completed_notes(run_dir: Path, status: RunStatus) -> dict[tuple[str, int], str]:
    """Return what the records of completed slices note, by stage and slice.

    Such as a process that outlived its function. The first `MAX_NOTES_READ` records are read.
    """
    notes = {}
    completed = (
        (stage.stage.name, part.ending)
        for stage in status.stages
        for part in stage.slices
        if part.status == "completed" and part.ending is not None
    )
    for name, ending in itertools.islice(completed, MAX_NOTES_READ):
        with suppress(OSError, DamagedFileError):  # the status comes from the record's name
            reason = read_completion(RunPaths(run_dir), name, ending).reason
            if reason:
                notes[name, ending.slice_index] = reason
    return notes


def _stuck_lines(status: RunStatus) -> list[str]:
    """Return what is in the queue and does not start by waiting, a line for each stage and why."""
    groups: dict[tuple[str, str], list[SliceStatus]] = {}
    for stage in status.stages:
        for part in stage.slices:
            if part.wait and part.reason != NEVER:
                groups.setdefault((stage.stage.name, part.reason), []).append(part)
    lines = []
    for (name, reason), parts in groups.items():
        is_array = status.stage(name).stage.is_array
        slices = f" slice {ranges_text(p.slice_index for p in parts)}" if is_array else ""
        lines.append(f"{name}{slices} {_REMEDIES[parts[0].wait].format(reason, _ids_text(parts))}")
    return lines


_REMEDIES: dict[Wait, str] = {
    "held": "{0}: `scontrol release {1}` lets it start",
    "held_by_admin": "{0}: only an administrator can release it (`scontrol release {1}`)",
    "never": "{0}: job {1} needs other settings; give them to the resume with `--set KEY=VALUE` "
    "or `--update-spec`",
    "blocked": "does not start by waiting ({0}): job {1} starts when an administrator changes that",
}


def _ids_text(parts: Sequence[SliceStatus]) -> str:
    """Return job ids as scontrol takes them: `12_[0-3,7]`."""
    jobs: dict[str, list[str]] = {}
    for part in parts:
        job_id, _, index = (part.job_id or "").partition("_")
        jobs.setdefault(job_id, []).append(index)
    texts = []
    for job_id, indices in jobs.items():
        listed = ranges_text(sorted({int(i) for i in indices if i}))
        text = f"[{listed}]" if len(set(indices)) > 1 else listed
        texts.append(f"{job_id}_{text}" if listed else job_id)
    return ",".join(texts)


def _shortened(
    run_dir: Path,
    failed: list[tuple[StageStatus, SliceStatus]],
    *,
    where_all_are: str,
    with_logs: bool = False,
) -> list[str]:
    """The first failures, a line each, and how many more there are."""
    lines = []
    for stage, part in failed[:MAX_PROBLEMS_SHOWN]:
        lines.append(problem_line(run_dir, stage, part))
        log = _failure_log(run_dir, stage.stage.name, part) if with_logs else None
        if log is not None:
            lines.append(f"  log: {shown_path(log)}")
    if len(failed) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(failed) - MAX_PROBLEMS_SHOWN} more ({where_all_are})")
    return lines


def new_failures(run_dir: Path, status: RunStatus, told: Collection[FailedAttempt]) -> NewFailures:
    """The slices that have failed and are not among those `told`."""
    failed = {
        (stage.stage.name, part.slice_index, part.job_id, part.attempt): (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status == "failed"
    }
    new = {attempt: found for attempt, found in failed.items() if attempt not in told}
    return NewFailures(
        attempts=frozenset(new),
        lines=tuple(_shortened(run_dir, [*new.values()], where_all_are="`status --json` has all")),
    )


def _is_barred_for_nothing(stage: StageStatus, status: RunStatus) -> bool:
    """Whether a job can never start although all that it comes after is complete."""
    above = [status.stage(parent).status for parent in stage.stage.after]
    is_barred = any(p.status == "stranded" and p.reason == NEVER for p in stage.slices)
    return is_barred and set(above) == {"completed"}


_REFUSED = "StageConfigError: "
"""Begins the reason of a stage that cannot do what its config says."""


def _ways_on(
    run_dir: Path,
    status: RunStatus,
    failed: list[tuple[StageStatus, SliceStatus]],
    *,
    is_barred: bool,
) -> list[str]:
    """What to type next; `resume` also where nothing failed and yet something will never start."""
    folder = shown_path(run_dir)
    paths = RunPaths(run_dir)
    settings = _settings(run_dir, failed)
    mends = [] if settings else _mends(run_dir, failed)
    update = ["--update-spec"] if mends else []
    resume = command_text("resume", folder, *settings, *update)
    for stage, part in failed[:MAX_PROBLEMS_SHOWN]:
        name = stage.stage.name
        if rank_logs(paths, name, [part]):
            where = [name, *(["--slice", str(part.slice_index)] if stage.stage.is_array else [])]
            where += ["--supervisor"] if has_explaining_log(paths, name, part) else []
            return [f"next: {command_text('logs', folder, *where)}", *mends, f"then: {resume}"]
    slices = [part for stage in status.stages for part in stage.slices]
    stranded = [part for part in slices if part.status == "stranded"]
    waits = {part.wait for part in stranded}
    if failed or is_barred or "never" in waits or any("`resume`" in p.reason for p in stranded):
        return [*mends, f"next: {resume}"]
    if waits & {"held", "held_by_admin"}:
        return [f"or: {resume} (cancels it, and submits it again)"]
    return []


def _mends(run_dir: Path, failed: list[tuple[StageStatus, SliceStatus]]) -> list[str]:
    """That the spec is to be changed first, where a stage refused what it says."""
    shown = failed[:MAX_PROBLEMS_SHOWN]
    if any(_REFUSED in reason_of(run_dir, stage.stage.name, part) for stage, part in shown):
        return ["mend the spec's file, or give `--set KEY=VALUE` in the place of --update-spec"]
    return []


def _settings(run_dir: Path, failed: list[tuple[StageStatus, SliceStatus]]) -> list[str]:
    """Return what has to be set in a resume, where the reasons say so; else the same comes again.

    Each key is given once. Shares that slices of one manifest lost add up.
    """
    settings = _memory_settings(run_dir, failed)
    for stage, part in failed[:MAX_PROBLEMS_SHOWN]:
        for command in _RESUMES.findall(reason_of(run_dir, stage.stage.name, part)):
            for setting in command.replace("--set", "").split():
                key, _, value = setting.partition("=")
                if key.endswith("_share") and key in settings:
                    value = f"{min(1.0, float(settings[key]) + float(value)):.3g}"
                settings[key] = value
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def _memory_settings(
    run_dir: Path, failed: list[tuple[StageStatus, SliceStatus]]
) -> dict[str, str]:
    """Return more memory for stages that ran out of it, unless their `on_resume` raises it."""
    names = dict.fromkeys(stage.stage.name for stage, p in failed if p.state == "OUT_OF_MEMORY")
    try:
        stages = read_json(RunPaths(run_dir).resolved_spec)["stages"] if names else {}
    except (OSError, DamagedFileError):
        return {}
    settings = {}
    for name in names:
        stage = stages.get(name, {})
        mem_gb = stage.get("resources", {}).get("mem_gb")
        if mem_gb and not (stage.get("on_resume") or {}).get("raise_mem_gb"):
            more_gb = math.ceil(mem_gb * _MORE_MEMORY)
            settings[f"stages.{name}.resources.mem_gb"] = str(more_gb)
    return settings


def problem_line(run_dir: Path, stage: StageStatus, part: SliceStatus) -> str:
    """`count slice 2 failed (local: FAILED): rank 0 on local0 ended with exit code 1`."""
    name = stage.stage.name + (f" slice {part.slice_index}" if stage.stage.is_array else "")
    state = f" ({part.source}: {part.state})" if part.state else ""
    return f"{name} {part.status}{state}: {reason_of(run_dir, stage.stage.name, part)}"


def reason_of(run_dir: Path, stage: str, part: SliceStatus) -> str:
    """Why a slice is not complete: its own record's words where it has one."""
    record = _record(run_dir, stage, part)
    if record is None:
        rows = ""
        if part.attempt and part.status in {"failed", "unknown"}:  # the supervisor was killed too
            task_dir = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt)
            rows = rows_in_progress(task_dir)
        return f"{part.reason}; {rows}" if rows else part.reason
    attempt = f"attempt {record.attempt}: " if record.attempt > 1 else ""
    return f"{attempt}{record.reason}"


def _record(run_dir: Path, stage: str, part: SliceStatus) -> CompletionRecord | None:
    if part.status != "failed" or part.ending is None:
        return None
    return read_completion(RunPaths(run_dir), stage, part.ending)


def _failure_log(run_dir: Path, stage: str, part: SliceStatus) -> Path | None:
    """The log that most likely tells why a slice failed; None of what did not fail."""
    if part.status != "failed":
        return None
    return failure_log(RunPaths(run_dir), stage, part, _record(run_dir, stage, part))


def last_failure(run_dir: Path, status: RunStatus) -> Failure | None:
    """The slice that failed last, as its records tell, with the end of its log."""
    paths = RunPaths(run_dir)
    failed = [
        (_failed_ns(paths, stage.stage.name, part), stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status == "failed"
    ]
    if not failed:
        return None
    _, stage, part = max(failed, key=lambda found: found[0])
    name = stage.stage.name
    log = _failure_log(run_dir, name, part)
    return Failure(
        line=problem_line(run_dir, stage, part),
        log=log,
        tail=tuple(map(truncated, last_lines(log, MAX_TAIL_LINES))) if log is not None else (),
    )


def _failed_ns(paths: RunPaths, stage: str, part: SliceStatus) -> int:
    """When the record of its failure was written, or its last attempt began; 0 without either."""
    if part.ending is not None:
        path = paths.completion(stage, part.ending)
    else:
        path = paths.attempt(stage, part.slice_index, part.attempt)
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
