"""Causes of failures: why slices are not complete, slices with equal causes as one."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.failure_kinds import FailureKind, shown_kind
from slurm_jobs.base.units import slices_text
from slurm_jobs.formats.records.attempt_records import AFTER_SIGTERM, CompletionRecord
from slurm_jobs.formats.records.joined_reasons import Reason, joined_text
from slurm_jobs.formats.records.rows_in_progress import rows_in_progress
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.worker.ignored_end import ignored_end_note
from slurm_jobs.worker.launch import GONE

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import StageStatus
    from slurm_jobs.status.slice_status import SliceStatus

MAX_PROBLEMS_SHOWN = 10
MAX_SLICES_READ = 500
"""Slices whose records are read to find causes: half a second on a slow shared file system."""
_KILLERS = frozenset({signal.SIGTERM, signal.SIGKILL})
_ENDED_FROM_OUTSIDE: frozenset[FailureKind | None] = frozenset(
    {"collective", "exit code", "gone", "killed", "not started"}
)
_EXPLAINING_STATES = frozenset({"NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"})
"""Slurm's words that say why its processes were ended from outside."""


@dataclass(kw_only=True, slots=True)
class Cause:
    """Slices of a stage that are not complete for the same reason."""

    stage: StageStatus
    parts: list[SliceStatus] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    """Of each slice; they differ in attempt, rank and node at most."""

    @property
    def text(self) -> str:
        """Return the reason, with all attempts, ranks and nodes."""
        return joined_text(self.reasons)

    def line(self) -> str:
        """Return `count slices 2,5 failed (local: FAILED): rank 0 on local0: no such file`."""
        states = dict.fromkeys(f"{part.source}: {part.state}" for part in self.parts if part.state)
        known = [*states, *filter(None, [shown_kind(self.reasons[0].kind)])]
        state = f" ({', '.join(known)})" if known else ""
        name, status = slices_name(self.stage, self.parts), self.parts[0].status
        return f"{name} {status}{state}: {self.text}"


def slices_name(stage: StageStatus, parts: Sequence[SliceStatus]) -> str:
    """Return `count slices 2,5`, or `count` for a stage without an array."""
    name = stage.stage.name
    if not stage.stage.is_array:
        return name
    return f"{name} {slices_text([part.slice_index for part in parts])}"


def causes_of(run_dir: Path, failed: Sequence[tuple[StageStatus, SliceStatus]]) -> list[Cause]:
    """Return the causes of the first `MAX_SLICES_READ` slices, in the order of these."""
    alike: dict[tuple[object, ...], Cause] = {}
    for stage, part in failed[:MAX_SLICES_READ]:
        reason = read_reason(run_dir, stage.stage.name, part)
        # A record has the reason whatever the scheduler says, which may be late for some slices.
        state = None if part.ending is not None else (part.source, part.state)
        place = stage.stage.name, part.status, state
        key = (*place, reason.kind, reason.without_place, reason.last_line)
        cause = alike.setdefault(key, Cause(stage=stage))
        cause.parts.append(part)
        cause.reasons.append(reason)
    return list(alike.values())


def read_reason(run_dir: Path, stage: str, part: SliceStatus) -> Reason:
    """Read why a slice is not complete.

    What the scheduler knows replaces a guess in the record.
    """
    record = failure_record(run_dir, stage, part)
    if record is None:
        return Reason(text=_killed_reason(run_dir, stage, part))  # the supervisor was killed, too
    text = record.reason
    kind = record.kind
    if kind in _ENDED_FROM_OUTSIDE and part.state in _EXPLAINING_STATES:
        kind = None
        text = text.removesuffix(f" {GONE}")
    if part.state == "TIMEOUT" and part.reason:
        detail = text.removeprefix(AFTER_SIGTERM)
        text = f"{part.reason}; {detail}"
        if _was_only_killed(record):
            text = _killed_reason(run_dir, stage, part)
    return Reason(
        text=text,
        attempt=record.attempt,
        rank=record.failed_rank,
        node=record.failed_node or "",
        last_line=record.last_line,
        kind=kind,
    )


def _was_only_killed(record: CompletionRecord) -> bool:
    """Check whether a task that reached its time limit has no other reason in its record."""
    if record.kind == "exit code":  # a shell shows a signal as 128 + its number
        return record.exit_code - 128 in _KILLERS
    return record.kind == "gone" or (record.kind == "killed" and record.signal in _KILLERS)


def failure_record(run_dir: Path, stage: str, part: SliceStatus) -> CompletionRecord | None:
    """Read the record of a slice's failure; None if it has none."""
    if part.status != "failed" or part.ending is None:
        return None
    return read_completion(RunPaths(run_dir), stage, part.ending)


def _killed_reason(run_dir: Path, stage: str, part: SliceStatus) -> str:
    """Return the scheduler's reason, with what the killed task itself had noted."""
    if not part.attempt or part.status not in {"failed", "unknown"}:
        return part.reason
    task_dir = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt)
    place = ignored_end_note(task_dir)
    texts = (part.reason, "" if place is None else place.text, rows_in_progress(task_dir))
    return "; ".join(text for text in texts if text)
