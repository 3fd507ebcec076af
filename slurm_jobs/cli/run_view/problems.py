"""Problems of a run, their reasons, and the next command to type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.cli.run_logs.log_files import (
    explaining_logs,
    last_lines,
    rank_logs,
)
from slurm_jobs.cli.run_view.causes import (
    MAX_PROBLEMS_SHOWN,
    causes_of,
    failure_record,
    slices_name,
)
from slurm_jobs.cli.run_view.next_commands import next_commands
from slurm_jobs.cli.terminal.shown_paths import shown_path
from slurm_jobs.formats.records.rank_note import RankNote, joined_notes
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.schedulers.job_states import Wait
from slurm_jobs.worker.idle import idle_note
from slurm_jobs.worker.ignored_end import ignored_end_note

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus, StageStatus
    from slurm_jobs.status.slice_status import SliceStatus, Status


MAX_NOTES_READ = 100
"""Records of completed slices, and folders of other ones, that one call reads; the report has the
notes of all completed ones."""
MAX_TAIL_LINES = 8
"""Lines of a failed task's log; a Python traceback's end fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Failed slice."""

    line: str
    """Slice, Slurm's state, and the reason."""
    log: Path | None = None
    tail: tuple[str, ...] = ()
    """Last lines of its log."""


FailedAttempt = tuple[str, int, str | None, int]
"""Stage, slice, job and attempt: a slice that fails again, after a resume, is a new failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFailures:
    """Slices that failed since the last report."""

    attempts: frozenset[FailedAttempt] = frozenset()
    lines: tuple[str, ...] = ()
    """One for each, as many as are shown, and the number of others."""


NO_NEW_FAILURES = NewFailures()


def source_lines(status: RunStatus) -> list[str]:
    """Return the sources that could not be queried, and what this cluster never reports."""
    silent = [f"could not be queried: {problem}" for problem in status.problems]
    return [*silent, *(f"note: {note}" for note in status.notes)]


def problem_lines(run_dir: Path, status: RunStatus, *, with_logs: bool = False) -> list[str]:
    """Return what failed, where and why, with its log if `with_logs`, and the next command."""
    ended_badly = [
        (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status in {"failed", "unknown", "cancelled"}
    ]
    with_causes = [(stage, part) for stage, part in ended_badly if part.cause != "cancelled here"]
    unstartable = _unstartable_stages(status)
    return [
        *source_lines(status),
        *_shortened(run_dir, with_causes, where_all_are="--json has all", with_logs=with_logs),
        *_cancelled_lines(status),
        *(_unstartable_line(stage, status) for stage in unstartable),
        *_remedy_lines(status),
        *_note_lines(status, place_notes(run_dir, status, "running"), "runs, but"),
        *_note_lines(status, completed_notes(run_dir, status), "completed, with a note:"),
        *_note_lines(status, place_notes(run_dir, status, "cancelled"), "cancelled, with a note:"),
        *next_commands(run_dir, status, ended_badly, is_unstartable=bool(unstartable)),
    ]


def _cancelled_lines(status: RunStatus) -> list[str]:
    lines = []
    ended = _cancelled_here(status, "cancelled")
    if ended:
        lines.append(f"cancelled by `slurm-jobs cancel`: {ended}")
    ending = _cancelled_here(status, "running")
    if ending:
        lines.append(f"cancelled, and still ending: {ending}")
    return lines


def _cancelled_here(status: RunStatus, word: Status) -> str:
    """Return the slices of this status that `slurm-jobs cancel` cancelled: `a slices 0-2, b`."""
    named = []
    for stage in status.stages:
        parts = [p for p in stage.slices if p.status == word and p.cause == "cancelled here"]
        if parts:
            named.append(slices_name(stage, parts))
    return ", ".join(named)


def _remedy_lines(status: RunStatus) -> list[str]:
    """Return what lets waiting jobs start, a line for each stage and reason."""
    waiting: dict[tuple[str, str], list[SliceStatus]] = {}
    for stage in status.stages:
        for part in stage.slices:
            if part.wait not in {"", "unmet"}:
                waiting.setdefault((stage.stage.name, part.reason), []).append(part)
    lines = []
    for (name, reason), parts in waiting.items():
        remedy = _REMEDIES[parts[0].wait].format(reason, _ids_text(parts))
        lines.append(f"{slices_name(status.stage(name), parts)} {remedy}")
    return lines


def _note_lines(
    status: RunStatus, notes: Mapping[tuple[str, int], RankNote], verb: str
) -> list[str]:
    """Return the first notes on slices, equal ones as one line, and the number of others.

    Notes of a stage are equal if they differ in rank, node and stacks at most. A note that names no
    rank in its record is a line of its own.
    """
    alike: dict[tuple[str, str, str, str, int | None], list[tuple[str, int]]] = {}
    for (name, index), note in notes.items():
        only_slice = index if note.rank is None else None
        key = (name, note.before, note.after, note.more, only_slice)
        alike.setdefault(key, []).append((name, index))
    lines = []
    for places in list(alike.values())[:MAX_PROBLEMS_SHOWN]:
        stage = status.stage(places[0][0])
        which = slices_name(stage, [stage.slices[index] for _, index in places])
        lines.append(f"{which} {verb} {joined_notes([notes[place] for place in places])}")
    if len(alike) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(alike) - MAX_PROBLEMS_SHOWN} more notes; --json has them")
    return lines


def completed_notes(run_dir: Path, status: RunStatus) -> dict[tuple[str, int], RankNote]:
    """Return the notes in the records of completed slices, by stage and slice.

    For example on a process that outlived its function. The first `MAX_NOTES_READ` records are
    read.
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
            record = read_completion(RunPaths(run_dir), name, ending)
            if record.rank_note is not None:
                notes[name, ending.slice_index] = record.rank_note
            elif record.reason:
                notes[name, ending.slice_index] = RankNote(before=record.reason)
    return notes


_PLACE_READERS: dict[Literal["running", "cancelled"], Callable[[Path], RankNote | None]] = {
    "running": idle_note,
    "cancelled": ignored_end_note,
}


def place_notes(
    run_dir: Path, status: RunStatus, word: Literal["running", "cancelled"]
) -> dict[tuple[str, int], RankNote]:
    """Return where the functions of slices with this status are, by stage and slice.

    A running slice has a note while it uses almost no processor time, a cancelled one if it did not
    end after SIGTERM. The folders of the first `MAX_NOTES_READ` are read.
    """
    notes = {}
    paths = RunPaths(run_dir)
    parts = (
        (stage.stage.name, part)
        for stage in status.stages
        for part in stage.slices
        if part.status == word and part.attempt
    )
    for name, part in itertools.islice(parts, MAX_NOTES_READ):
        note = _PLACE_READERS[word](paths.task_dir(name, part.slice_index, part.attempt))
        if note is not None:
            notes[name, part.slice_index] = note
    return notes


_REMEDIES: dict[Wait, str] = {
    "held": "{0}: `scontrol release {1}` lets it start",
    "held_by_admin": "{0}: only an administrator can release it (`scontrol release {1}`)",
    "never": "{0}: job {1} needs other settings; give them to the resume with `--set KEY=VALUE` "
    "or `--update-spec`",
    "blocked": "cannot start ({0}) until an administrator changes that: job {1}",
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
    """Return the first causes of failures, a line each, and the number of other slices."""
    causes = causes_of(run_dir, failed)
    lines = []
    for cause in causes[:MAX_PROBLEMS_SHOWN]:
        lines.append(cause.line())
        log = failure_log(run_dir, cause.stage.stage.name, cause.parts[0]) if with_logs else None
        if log is not None:
            lines.append(f"  log: {shown_path(log)}")
    num_more = len(failed) - sum(len(cause.parts) for cause in causes[:MAX_PROBLEMS_SHOWN])
    if num_more:
        slices = "slices" if num_more > 1 else "slice"
        lines.append(f"... and {num_more} more {slices} ({where_all_are})")
    return lines


def new_failures(
    run_dir: Path, status: RunStatus, reported: Collection[FailedAttempt]
) -> NewFailures:
    """Return the slices that have failed and are not in `reported`."""
    failed = {
        (stage.stage.name, part.slice_index, part.job_id, part.attempt): (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status == "failed"
    }
    new = {attempt: where for attempt, where in failed.items() if attempt not in reported}
    return NewFailures(
        attempts=frozenset(new),
        lines=tuple(_shortened(run_dir, [*new.values()], where_all_are="`status --json` has all")),
    )


def _unstartable_stages(status: RunStatus) -> list[StageStatus]:
    """Return the stages that can never start although everything before them is complete."""
    unstartable = []
    for stage in status.stages:
        is_unmet = any(p.status == "stranded" and p.wait == "unmet" for p in stage.slices)
        parents = map(status.stage, stage.stage.after)
        if is_unmet and {parent.status for parent in parents} == {"completed"}:
            unstartable.append(stage)
    return unstartable


def _unstartable_line(stage: StageStatus, status: RunStatus) -> str:
    """Return why a stage can never start, as in this example.

    b stranded: `a` slice 3 is complete by its records, but the scheduler counts its job as TIMEOUT,
    as its process reached its time limit before it ended: raise stages.a.resources.timeout_min
    """
    name = stage.stage.name
    for parent in map(status.stage, stage.stage.after):
        for part in parent.slices:
            if part.state in {None, "COMPLETED"}:
                continue
            which = f" slice {part.slice_index}" if parent.stage.is_array else ""
            why = ""
            if part.state == "TIMEOUT":
                reason = part.reason.replace(" (resources.timeout_min)", "")
                origin = parent.stage.origin or parent.stage.name
                key = f"stages.{origin}.resources.timeout_min"
                why = f", as its process {reason} before it ended: raise {key}"
            return (
                f"{name} stranded: `{parent.stage.name}`{which} is complete by its records, but "
                f"the scheduler counts its job as {part.state}{why}"
            )
    return f"{name} stranded: its parents are complete by their records, but not for the scheduler"


def failure_log(run_dir: Path, stage: str, part: SliceStatus) -> Path | None:
    """Return the log that most likely shows why a slice failed: of the rank that failed first."""
    if part.status != "failed":
        return None
    paths, record = RunPaths(run_dir), failure_record(run_dir, stage, part)
    if record is not None and record.failed_rank is not None:
        log = paths.rank_log(stage, part.slice_index, record.attempt, record.failed_rank)
        if log.exists():
            return log
    shown = rank_logs(paths, stage, [part])
    return next(iter([*explaining_logs(paths, stage, [part], shown), *shown]), None)


def last_failure(run_dir: Path, status: RunStatus) -> Failure | None:
    """Return the slice that failed last, by its records, with the end of its log."""
    paths = RunPaths(run_dir)
    last: tuple[int, StageStatus, SliceStatus] | None = None
    for stage in status.stages:
        for part in stage.slices:
            if part.status != "failed":
                continue
            if part.ending is not None:
                record = paths.completion(stage.stage.name, part.ending)
            else:
                record = paths.attempt(stage.stage.name, part.slice_index, part.attempt)
            try:
                failed_ns = record.stat().st_mtime_ns
            except FileNotFoundError:
                failed_ns = 0
            if last is None or failed_ns > last[0]:
                last = failed_ns, stage, part
    if last is None:
        return None
    _, stage, part = last
    log = failure_log(run_dir, stage.stage.name, part)
    tail: list[str] = []
    if log is not None:
        try:
            tail = last_lines(log, MAX_TAIL_LINES)
        except OSError as error:
            tail = [f"{log}: {error.strerror or error}"]
    (cause,) = causes_of(run_dir, [(stage, part)])
    return Failure(line=cause.line(), log=log, tail=tuple(map(truncated, tail)))
