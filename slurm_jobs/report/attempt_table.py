"""Table of the attempts of a stage, the same in `status` and in every report. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from slurm_jobs.report.attempt_losses import StageLoss, stage_loss, with_steps
from slurm_jobs.report.inputs import RankTiming, StageInputs
from slurm_jobs.report.steps import split_attempts
from slurm_jobs.run.attempt_history import AttemptEntry
from slurm_jobs.shared import units

COLUMNS = (
    "slice",
    "attempt",
    "job",
    "node",
    "started",
    "ended",
    "ended by",
    "Slurm",
    "steps",
    "lost",
)
_MAX_NODE_CHARS = 16
MAX_SLICES = 20
"""Slices of a stage in a table; the JSON has all."""
_MOST_OF_SLICE = 20
_MAX_ROWS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class StageAttempts:
    """Attempts of one stage, at the slices that were tried again or are not complete."""

    stage: str
    entries: tuple[AttemptEntry, ...]
    """By slice and start."""
    num_slices: int
    """Slices of the stage."""
    num_explained: int
    """Slices that `entries` are about; all others completed at the first attempt, run or wait."""
    lost: StageLoss
    """Over all slices."""


def stage_attempts(
    stage: StageInputs, history: Sequence[AttemptEntry], now_unix_s: float
) -> StageAttempts:
    """Return the attempts of a stage with their steps, without those that need no explanation."""
    timings: dict[int, list[RankTiming]] = {}
    for timing in stage.timings:
        timings.setdefault(timing.slice_index, []).append(timing)
    fingerprints: dict[int, dict[int, str]] = {}
    for record in stage.attempts:
        by_attempt = fingerprints.setdefault(record.slice_index, {})
        by_attempt[record.attempt] = record.fingerprint
    entries: list[AttemptEntry] = []
    explained: list[AttemptEntry] = []
    num_explained = 0
    for index, group in groupby(history, key=lambda entry: entry.slice_index):
        of_slice: Sequence[AttemptEntry] = list(group)
        if index in timings and needs_explanation(of_slice):
            steps = split_attempts(timings[index], 0, fingerprints.get(index, {}))
            of_slice = with_steps(of_slice, steps)
        entries += of_slice
        if needs_explanation(of_slice):
            explained += of_slice
            num_explained += 1
    return StageAttempts(
        stage=stage.name,
        entries=tuple(explained),
        num_slices=stage.num_slices,
        num_explained=num_explained,
        lost=stage_loss(entries, now_unix_s),
    )


def needs_explanation(of_slice: Sequence[AttemptEntry]) -> bool:
    """Check whether a slice was tried more than once, or its last attempt did not complete."""
    return len(of_slice) > 1 or of_slice[-1].ending not in {"completed", "running"}


def shown_entries(entries: Sequence[AttemptEntry]) -> tuple[AttemptEntry, ...]:
    """Return what fits into a table: the last attempts at each of the first slices."""
    shown: list[AttemptEntry] = []
    by_slice = groupby(entries, key=lambda entry: entry.slice_index)
    for num_before, (_, group) in enumerate(by_slice):
        of_slice = list(group)[-_MOST_OF_SLICE:]
        if num_before == MAX_SLICES or len(shown) + len(of_slice) > _MAX_ROWS:
            break
        shown += of_slice
    return tuple(shown)


def attempt_rows(
    entries: Sequence[AttemptEntry], clock: Callable[[float], str], *, is_array: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of a table, without columns in which no row has anything."""
    rows = [_cells(entry, clock) for entry in entries]
    places = [
        place
        for place, name in enumerate(COLUMNS)
        if any(row[place] for row in rows) and (is_array or name != "slice")
    ]
    columns = tuple(COLUMNS[place] for place in places)
    return columns, [tuple(row[place] for place in places) for row in rows]


def _cells(entry: AttemptEntry, clock: Callable[[float], str]) -> tuple[str, ...]:
    ended = "" if entry.ending == "running" else units.NOT_KNOWN
    return (
        f"{entry.slice_index}",
        f"{entry.attempt}" if entry.attempt else "no record",
        entry.job_id,
        units.shortened(entry.node, _MAX_NODE_CHARS),
        clock(entry.start_unix_s),
        ended if entry.end_unix_s is None else clock(entry.end_unix_s),
        entry.ending,
        entry.state,
        "" if entry.num_steps is None else f"{entry.num_steps:,}",
        "" if not entry.lost_s else units.seconds(entry.lost_s),
    )


def reason_lines(entries: Sequence[AttemptEntry], *, is_array: bool) -> list[str]:
    """Return why each attempt ended, a line each."""
    lines = []
    for entry in entries:
        which = f"slice {entry.slice_index}, " if is_array else ""
        number = f"attempt {entry.attempt}" if entry.attempt else f"job {entry.job_id}"
        if entry.reason:
            lines.append(f"{which}{number}: {entry.reason}")
    return lines


def others_text(attempts: StageAttempts, shown: Sequence[AttemptEntry]) -> str:
    """Return how many slices and attempts a table leaves out; empty if none."""
    slices = {entry.slice_index for entry in shown}
    num_slices = attempts.num_explained - len(slices)
    of_shown = [entry for entry in attempts.entries if entry.slice_index in slices]
    num_earlier = len(of_shown) - len(shown)
    parts = [f"{num_earlier:,} earlier attempts"] if num_earlier else []
    parts += [f"{units.number_of('slice', num_slices)} more"] if num_slices else []
    return f"and {' and '.join(parts)}" if parts else ""


def entry_values(entry: AttemptEntry) -> Mapping[str, Any]:
    """Return an attempt as JSON values, with the sum of its lost time."""
    return {**asdict(entry), "lost_s": entry.lost_s}
