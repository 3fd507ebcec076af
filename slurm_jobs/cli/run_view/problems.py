"""Problems of a run, their reasons, and the next command to type."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurm_jobs.cli.run_logs.log_files import (
    explaining_logs,
    has_explaining_log,
    last_lines,
    rank_logs,
)
from slurm_jobs.cli.run_view.causes import causes_of, failure_record, read_reason, slices_name
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.schedulers.job_states import Wait
from slurm_jobs.shared.errors import DamagedFileError
from slurm_jobs.shared.files import read_json
from slurm_jobs.shared.index_ranges import ranges_text
from slurm_jobs.shared.texts.truncation import truncated
from slurm_jobs.status.slice_status import CANCELLED, STOPPED_AND_LEFT
from slurm_jobs.worker.idle import idle_text
from slurm_jobs.worker.ignored_end import ignored_end_text
from slurm_jobs.worker.launch import SHELL_CODES

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus, StageStatus
    from slurm_jobs.status.slice_status import SliceStatus

MAX_PROBLEMS_SHOWN = 10
_RESUME = re.compile(r"`slurm-jobs resume ([^`]+)`")
"""A resume command in a reason, with its arguments."""
_PLACEHOLDER = re.compile(r"[A-Z]+")
"""Word that the user replaces by a value (`VALUE`); only `FOLDER` is offered unchanged."""
_IN_FILE = re.compile(r"(?:rank \d+ on \S+: \w+: )?/(?!.*: no such)")
"""Start of the reason of a stage that refused a file, rather than a value of its config."""
_IN_CODE = re.compile(
    r"(?:rank \d+ on \S+: \w+: )?`run: [^`]*:|rank \d+ on \S+: "
    r"(?:(?:SyntaxError|IndentationError|TabError|NameError|UnboundLocalError|AttributeError|"
    r"ImportError|ModuleNotFoundError): |TypeError: [\w.]+\(\) (?:takes|got|missing) )"
)
"""Start of the reason of a function whose code is wrong."""
_IN_PACKAGES = re.compile(r"(?:rank \d+ on \S+: \w+: )?`run: \w+`: No module named ")
"""Start of the reason of a built-in stage whose Python lacks a package."""
_MORE_TIME = 2
"""Factor that is offered after a stage reached its time limit."""
_MORE_MEMORY = 1.5
"""Factor that is offered after a stage ran out of memory."""
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
    lines = source_lines(status)
    failed = [
        (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status in {"failed", "unknown", "cancelled"}
    ]
    by_user: dict[str, list[SliceStatus]] = {}
    others = []
    for stage, part in failed:
        if part.status == "cancelled" and part.reason == CANCELLED:
            by_user.setdefault(stage.stage.name, []).append(part)
        else:
            others.append((stage, part))
    lines += _shortened(run_dir, others, where_all_are="--json has all", with_logs=with_logs)
    if by_user:
        named = [slices_name(status.stage(name), parts) for name, parts in by_user.items()]
        lines.append(f"cancelled by `slurm-jobs cancel`: {', '.join(named)}")
    unstartable = [
        stage.stage.name
        for stage in status.stages
        if any(p.status == "stranded" and p.wait == "unmet" for p in stage.slices)
        and {status.stage(parent).status for parent in stage.stage.after} == {"completed"}
    ]
    lines += [_unstartable_line(name, status) for name in unstartable]
    stuck: dict[tuple[str, str], list[SliceStatus]] = {}
    for stage in status.stages:
        for part in stage.slices:
            if part.wait not in {"", "unmet"}:
                stuck.setdefault((stage.stage.name, part.reason), []).append(part)
    for (name, reason), parts in stuck.items():
        is_array = status.stage(name).stage.is_array
        slices = f" slice {ranges_text(p.slice_index for p in parts)}" if is_array else ""
        lines.append(f"{name}{slices} {_REMEDIES[parts[0].wait].format(reason, _ids_text(parts))}")
    lines += _note_lines(status, place_notes(run_dir, status, "running"), "runs, but")
    lines += _note_lines(status, completed_notes(run_dir, status), "completed, with a note:")
    lines += _note_lines(
        status, place_notes(run_dir, status, "cancelled"), "cancelled, with a note:"
    )
    return [*lines, *_next_commands(run_dir, status, failed, is_unstartable=bool(unstartable))]


def _note_lines(status: RunStatus, notes: Mapping[tuple[str, int], str], verb: str) -> list[str]:
    """Return the first notes on slices, a line each, and the number of others."""
    lines = []
    for (name, index), note in list(notes.items())[:MAX_PROBLEMS_SHOWN]:
        which = f" slice {index}" if status.stage(name).stage.is_array else ""
        lines.append(f"{name}{which} {verb} {note}")
    if len(notes) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(notes) - MAX_PROBLEMS_SHOWN} more notes; --json has them")
    return lines


def completed_notes(run_dir: Path, status: RunStatus) -> dict[tuple[str, int], str]:
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
            reason = read_completion(RunPaths(run_dir), name, ending).reason
            if reason:
                notes[name, ending.slice_index] = reason
    return notes


_PLACE_READERS: dict[Literal["running", "cancelled"], Callable[[Path], str | None]] = {
    "running": idle_text,
    "cancelled": ignored_end_text,
}


def place_notes(
    run_dir: Path, status: RunStatus, word: Literal["running", "cancelled"]
) -> dict[tuple[str, int], str]:
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


def _unstartable_line(name: str, status: RunStatus) -> str:
    """Return why a job can never start although everything before it is complete."""
    for parent in map(status.stage, status.stage(name).stage.after):
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


_NO_COMMAND = f"(in a shell: {SHELL_CODES[127]})"
_REFUSED = "StageConfigError: "
"""Part of the reason of a stage that cannot follow its config."""
_FIX_SPEC = "fix the spec's file, or give `--set KEY=VALUE` instead of --update-spec"
_FIX_CODE = "fix the code; the run uses a copy of it, which --update-code replaces"


@dataclass(slots=True)
class _Resume:
    """Options of a resume after failures, each given once."""

    settings: dict[str, str] = field(default_factory=dict)
    again: dict[str, None] = field(default_factory=dict)
    update: dict[str, None] = field(default_factory=dict)

    def words(self) -> list[str]:
        sets = [
            word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")
        ]
        again = [word for stage in self.again for word in ("--again", stage)]
        return [*sets, *again, *sorted(self.update, reverse=True)]

    def take(self, other: _Resume) -> None:
        """Add what another failure needs: the sum of lost shares, the longest sample."""
        for key, value in other.settings.items():
            known = self.settings.get(key)
            if known is None or _PLACEHOLDER.fullmatch(known):
                self.settings[key] = value
            elif _PLACEHOLDER.fullmatch(value):
                continue
            elif key.endswith("_share"):
                self.settings[key] = f"{min(1.0, float(known) + float(value)):.3g}"
            elif key.endswith(".max_tokens"):
                self.settings[key] = max(known, value, key=float)
            else:
                self.settings[key] = value
        self.again |= other.again
        self.update |= other.update


def _next_commands(
    run_dir: Path,
    status: RunStatus,
    failed: list[tuple[StageStatus, SliceStatus]],
    *,
    is_unstartable: bool,
) -> list[str]:
    """Return the next commands; `resume` also if nothing failed but something will never start."""
    folder = shown_path(run_dir)
    paths = RunPaths(run_dir)
    first, second = _resumes(run_dir, failed)
    fixes = [
        text
        for option, text in (("--update-spec", _FIX_SPEC), ("--update-code", _FIX_CODE))
        if option in first.update
    ]
    resume = command_text("resume", folder, *first.words())
    other = command_text("resume", folder, *second.words())
    others = [f"  or: {other}"] if other != resume else []
    for stage, part in failed[:MAX_PROBLEMS_SHOWN]:
        name = stage.stage.name
        if rank_logs(paths, name, [part]):
            where = [name, *(["--slice", str(part.slice_index)] if stage.stage.is_array else [])]
            where += ["--supervisor"] if has_explaining_log(paths, name, part) else []
            shown = command_text("logs", folder, *where)
            return [f"next: {shown}", *fixes, f"then: {resume}", *others]
    slices = [part for stage in status.stages for part in stage.slices]
    stranded = [part for part in slices if part.status == "stranded"]
    waits = {part.wait for part in stranded}
    if (
        failed
        or is_unstartable
        or waits & {"unmet", "never"}
        or any("`resume`" in p.reason for p in stranded)
    ):
        return [*fixes, f"next: {resume}", *others]
    if waits & {"held", "held_by_admin"}:
        return [f"or: {resume} (cancels it, and submits it again)"]
    return []


def _resumes(
    run_dir: Path, failed: list[tuple[StageStatus, SliceStatus]]
) -> tuple[_Resume, _Resume]:
    """Return the resume that avoids the failures, and a second way, if any.

    If a reason names several commands, the first is better.
    """
    raised = _raised_limits(run_dir, failed)
    first, second = _Resume(settings=dict(raised)), _Resume(settings=dict(raised))
    for stage, part in failed[:MAX_PROBLEMS_SHOWN]:
        reason = read_reason(run_dir, stage.stage.name, part).text
        named = [_named_resume(words, stage.stage.name) for words in _RESUME.findall(reason)]
        ways = [way for way in named if way is not None]
        if not ways or any(map(_PLACEHOLDER.fullmatch, ways[0].settings.values())):
            ways.insert(0, _fresh_input(run_dir, stage, part, reason))
        first.take(ways[0])
        second.take(ways[-1])
        if not named and _may_be_of_code(stage, part):
            second.update |= _keeping_complete(run_dir, stage)
    if first.words() == second.words():
        second.update.pop("--keep-complete", None)
    return first, second


def _may_be_of_code(stage: StageStatus, part: SliceStatus) -> bool:
    """Check whether a fix of the code may be the remedy: others completed, and no limit was met."""
    is_own_function = ":" in stage.stage.run
    is_limit = part.state in {"TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "NODE_FAIL"}
    has_failed = part.status == "failed" and part.ending is not None
    return is_own_function and has_failed and not is_limit and stage.counts["completed"] > 0


def _keeping_complete(run_dir: Path, stage: StageStatus) -> dict[str, None]:
    """Return the options that take the code as it is now, and keep complete slices if any."""
    update: dict[str, None] = {"--update-code": None}
    if stage.counts["completed"] and not _forbids_mixed_code(run_dir, stage.stage.name):
        update["--keep-complete"] = None
    return update


def _named_resume(text: str, stage: str) -> _Resume | None:
    """Return the options of a command in a reason; None if too much is left open."""
    resume = _Resume()
    try:
        words = iter(shlex.split(text))
    except ValueError:  # cut off
        return None
    for word in words:
        if word == "--set":
            key, _, value = next(words, "").partition("=")
            if key.rpartition(".")[2] == "KEY" or (
                _PLACEHOLDER.fullmatch(value) and value != "FOLDER"
            ):
                return None
            resume.settings[key] = value
        elif word == "--again":
            again = next(words, "")
            resume.again[stage if again == "STAGE" else again] = None
        elif word.startswith("--update"):
            resume.update[word] = None
    return resume


def _fresh_input(run_dir: Path, stage: StageStatus, part: SliceStatus, reason: str) -> _Resume:
    """Return a resume with new code, spec or values, for a reason that names no command."""
    record = failure_record(run_dir, stage.stage.name, part)
    text = reason if record is None else record.reason
    if ":" in stage.stage.run and _IN_CODE.match(text):  # `module:function`
        return _Resume(update=_keeping_complete(run_dir, stage))
    if _IN_PACKAGES.match(text):
        return _Resume()
    is_refused = _REFUSED in text or (record is not None and not record.retryable)
    if not (is_refused or _NO_COMMAND in text) or _IN_FILE.match(text):
        return _Resume()
    overrides: list[str] = []
    with suppress(OSError, DamagedFileError):
        overrides = read_json(RunPaths(run_dir).spec_origin)["overrides"]
    prefixes = tuple(f"stages.{name}." for name in (stage.stage.name, stage.stage.origin) if name)
    keys = [override.partition("=")[0] for override in overrides if override.startswith(prefixes)]
    kept = [key for key in keys if re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", text)]
    if kept:  # --update-spec would keep these values
        return _Resume(settings=dict.fromkeys(kept, "VALUE"))
    return _Resume(update={"--update-spec": None})


def _forbids_mixed_code(run_dir: Path, stage: str) -> bool:
    try:
        stages = read_resolved_values(RunPaths(run_dir))["stages"]
    except (OSError, DamagedFileError):
        return False
    return bool(stages.get(stage, {}).get("mixed_code") == "forbid")


def _raised_limits(run_dir: Path, failed: list[tuple[StageStatus, SliceStatus]]) -> dict[str, str]:
    """Return more memory or time for stages that needed it, unless their `on_resume` raises it.

    A stage that saved after the signal to stop continues there, and needs no more time.
    """
    raised = {
        "OUT_OF_MEMORY": ("mem_gb", _MORE_MEMORY),
        "TIMEOUT": ("timeout_min", _MORE_TIME),
    }
    wanted = dict.fromkeys(
        (stage.stage.name, *raised[part.state])
        for stage, part in failed
        if part.status == "failed" and part.state in raised and part.reason != STOPPED_AND_LEFT
    )
    try:
        stages = read_resolved_values(RunPaths(run_dir))["stages"] if wanted else {}
    except (OSError, DamagedFileError):
        return {}
    settings = {}
    for name, key, factor in wanted:
        stage = stages.get(name, {})
        limit = stage.get("resources", {}).get(key)
        if limit and not (stage.get("on_resume") or {}).get(f"raise_{key}"):
            settings[f"stages.{name}.resources.{key}"] = str(math.ceil(limit * factor))
    return settings


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
