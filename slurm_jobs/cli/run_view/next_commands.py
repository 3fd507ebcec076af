"""Commands to type next after failures: the log that shows why, and the resume that avoids them.

A failure's kind decides, and the commands that its error names. A text is searched only for the
names of the values that the user has set, because errors of a config do not carry their key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import DamagedFileError, InputError
from slurm_jobs.base.failure_kinds import FailureKind
from slurm_jobs.base.files import read_json
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.cli.run_logs.log_files import has_explaining_log, rank_logs
from slurm_jobs.cli.run_view.causes import MAX_PROBLEMS_SHOWN, failure_record
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values

if TYPE_CHECKING:
    from slurm_jobs.formats.records.attempt_records import CompletionRecord
    from slurm_jobs.plan.planned import SliceRequest
    from slurm_jobs.run_folder.run_values import StageSummary
    from slurm_jobs.status.run_status import RunStatus, StageStatus
    from slurm_jobs.status.slice_status import SliceStatus

_PLACEHOLDERS = frozenset({"VALUE", "FOLDER"})
"""Words that the user replaces by a value."""
_LIMITS = {"TIMEOUT": "timeout_min", "OUT_OF_MEMORY": "mem_gb"}
"""Keys of the limits that a failed slice has reached, by Slurm's state."""
_FACTORS = {"timeout_min": 2, "mem_gb": 1.5}
"""How much more of a limit is offered after a stage reached it."""
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
            if known is None or known in _PLACEHOLDERS:
                self.settings[key] = value
            elif value in _PLACEHOLDERS:
                continue
            else:
                self.settings[key] = _combined(key, known, value)
        self.again |= other.again
        self.update |= other.update


def _combined(key: str, known: str, value: str) -> str:
    """Return the value of a key that two failures want to set."""
    with suppress(ValueError):  # of a record that no stage has written
        if key.endswith("_share"):
            return f"{min(1.0, float(known) + float(value)):.3g}"
        if key.endswith(".max_tokens"):
            return max(known, value, key=float)
    return value


def next_commands(
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
        or any(part.cause in {"not submitted", "no runner"} for part in stranded)
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
        record = failure_record(run_dir, stage.stage.name, part)
        named = record.resumes if record is not None else ()
        ways = [_named_resume(words, stage.stage.name) for words in named]
        if not ways or any(value in _PLACEHOLDERS for value in ways[0].settings.values()):
            ways.insert(0, _fresh_input(run_dir, stage, record))
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


def _named_resume(words: Sequence[str], stage: str) -> _Resume:
    """Return the options of a resume that a failed stage has named."""
    resume = _Resume()
    remaining = iter(words)
    for word in remaining:
        if word == "--set":
            key, _, value = next(remaining).partition("=")
            resume.settings[key.replace("stages.STAGE.", f"stages.{stage}.")] = value
        elif word == "--again":
            again = next(remaining)
            resume.again[stage if again == "STAGE" else again] = None
        else:
            resume.update[word] = None
    return resume


_OF_SPECS: frozenset[FailureKind | None] = frozenset(
    {"wrong config", "device memory", "packing leak", "missing command"}
)
"""Kinds of failures for which another value in the spec is the remedy."""
_OF_CODE: frozenset[FailureKind | None] = frozenset({"wrong code", "missing package"})


def _fresh_input(run_dir: Path, stage: StageStatus, record: CompletionRecord | None) -> _Resume:
    """Return a resume with new code, spec or values, for a failure that names no command."""
    if record is None:
        return _Resume()
    is_own_function = ":" in stage.stage.run  # `module:function`
    if is_own_function and record.kind in _OF_CODE:
        return _Resume(update=_keeping_complete(run_dir, stage))
    # A later version may have kinds that this one does not know.
    is_of_spec = record.kind in _OF_SPECS or (record.kind is None and not record.retryable)
    if not is_of_spec:
        return _Resume()
    overrides: list[str] = []
    with suppress(OSError, DamagedFileError):
        overrides = read_json(RunPaths(run_dir).spec_origin)["overrides"]
    prefixes = tuple(f"stages.{name}." for name in (stage.stage.name, stage.stage.origin) if name)
    keys = [override.partition("=")[0] for override in overrides if override.startswith(prefixes)]
    kept = []
    for key in keys:
        name = re.compile(rf"\b{re.escape(key.rpartition('.')[2])}\b")
        if name.search(record.reason):
            kept.append(key)
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
    """Return more memory or time for slices that needed it, unless their `on_resume` raises it.

    A stage that saved after the signal to stop continues there, and needs no more time.
    """
    reached: dict[tuple[str, str], list[int]] = {}
    stages = {}
    for stage, part in failed:
        limit_key = _LIMITS.get(part.state or "")
        if limit_key and part.status == "failed" and part.cause != "stopped and left":
            reached.setdefault((stage.stage.name, limit_key), []).append(part.slice_index)
            stages[stage.stage.name] = stage
    try:
        values = read_resolved_values(RunPaths(run_dir))["stages"] if reached else {}
    except (OSError, DamagedFileError):
        return {}
    own = _own_requests(run_dir, [stage.stage for stage in stages.values()]) if reached else {}
    settings = {}
    for (name, key), slices in reached.items():
        stage_values = values.get(name, {})
        resources, on_resume = (
            stage_values.get("resources", {}),
            stage_values.get("on_resume") or {},
        )
        own_limits = [getattr(own.get(name, {}).get(index), key, None) for index in slices]
        limit = max(filter(None, [resources.get(key), *own_limits]), default=None)
        if limit is None or on_resume.get(f"raise_{key}"):
            continue
        # A limit of all slices would also change the jobs of those that failed for other reasons.
        is_of_some = stages[name].counts["failed"] > len(slices) or any(own_limits)
        which = f"{name}[{ranges_text(slices)}]" if is_of_some else name
        raised = str(math.ceil(limit * _FACTORS[key]))
        settings[f"stages.{which}.resources.{key}"] = raised
    return settings


def _own_requests(
    run_dir: Path, stages: Sequence[StageSummary]
) -> Mapping[str, Mapping[int, SliceRequest]]:
    """Return what single slices have requested in earlier resumes."""
    # Here, because it imports pydantic, which takes half of the time of a `status`.
    from slurm_jobs.commands.resuming.slice_requests import slice_requests

    with suppress(OSError, DamagedFileError, InputError):
        overrides = read_json(RunPaths(run_dir).spec_origin).get("slice_overrides", [])
        return slice_requests(overrides, stages)
    return {}
