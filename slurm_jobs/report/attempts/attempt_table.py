"""Table of the attempts of a stage, the same in `status` and in every report. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from slurm_jobs.base import units
from slurm_jobs.formats.records.joined_reasons import Reason, joined_text
from slurm_jobs.report.attempts.attempt_losses import stage_loss, with_steps
from slurm_jobs.report.attempts.gathered_attempts import REPORT_RUN
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.steps.attempt_steps import split_by_slice
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.run.attempt_history import AttemptEntry, StageSources, attempt_history

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


def explained_attempts(inputs: ReportInputs) -> tuple[StageAttempts, ...]:
    """Return the attempts of each stage that has any to explain, except the report's own stage."""
    explained = (
        _stage_attempts(stage, inputs) for stage in inputs.stages if stage.run != REPORT_RUN
    )
    return tuple(attempts for attempts in explained if attempts.entries)


def _stage_attempts(stage: StageInputs, inputs: ReportInputs) -> StageAttempts:
    sources = StageSources(
        stage=stage.name,
        run_name=str(inputs.run["name"]),
        records=stage.attempts,
        completions={(done.slice_index, done.attempt): done for done in stage.completions},
        accounting=inputs.accounting,
        answer=inputs.answer,
        intents=inputs.intents or (),
    )
    steps = split_by_slice(stage)
    entries: list[AttemptEntry] = []
    explained: list[AttemptEntry] = []
    num_explained = 0
    for index, group in groupby(attempt_history(sources), key=lambda entry: entry.slice_index):
        of_slice: Sequence[AttemptEntry] = list(group)
        if needs_explanation(of_slice):
            of_slice = with_steps(of_slice, steps.get(index, ()))
            explained += of_slice
            num_explained += 1
        entries += of_slice
    return StageAttempts(
        stage=stage.name,
        entries=tuple(explained),
        num_slices=stage.num_slices,
        num_explained=num_explained,
        lost=stage_loss(entries, inputs.read_unix_s),
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
        entry.ending_text,
        entry.state,
        "" if entry.num_steps is None else f"{entry.num_steps:,}",
        "" if not entry.lost_s else units.seconds(entry.lost_s),
    )


def clock_text(unix_s: float) -> str:
    """Return date and time in UTC, as the rest of a report has them."""
    return units.moment(unix_s).removesuffix(" UTC")


def reason_lines(entries: Sequence[AttemptEntry], *, is_array: bool) -> list[str]:
    """Return why attempts ended, a line for each reason."""
    lines = []
    for alike in _alike(entry for entry in entries if entry.reason):
        first = alike[0]
        which = [units.slices_text(_slices(alike))] if is_array else []
        if len(alike) == 1:
            which.append(f"attempt {first.attempt}" if first.attempt else f"job {first.job_id}")
            lines.append(f"{', '.join(which)}: {first.reason}")
        else:
            lines.append(": ".join([*which, joined_text([_reason(entry) for entry in alike])]))
    return lines


def ended_lines(attempts: StageAttempts, *, is_complete: bool, most: int) -> list[str]:
    """Return a line for each reason why attempts did not complete, and the number of others.

    Shown are the first `most` reasons of an array, and the last `most` of a single slice.
    """
    reasons = _alike(
        e for e in attempts.entries if e.ending not in {"completed", "running", "superseded"}
    )
    shown = reasons[:most] if attempts.num_slices > 1 else reasons[-most:]
    before = ", before it completed" if is_complete else ""
    lines = []
    for alike in shown:
        first = alike[0]
        head = f"{first.ending_text}{before}"
        if len(alike) > 1:
            where = f"{attempts.stage}, {units.slices_text(_slices(alike))}"
            text = joined_text([_reason(entry) for entry in alike])
            lines.append(f"{head}: {where}: {text}")
            continue
        cost = ""
        if first.num_steps is not None:
            lost = f", {units.seconds(first.lost_s)} lost" if first.lost_s else ""
            cost = f" ({first.num_steps:,} steps{lost})"
        lines.append(f"{head}: {entry_name(first)}: {first.reason}{cost}")
    num_left = sum(map(len, reasons)) - sum(map(len, shown))
    if num_left:
        of = f"ended attempts of {attempts.stage}"
        lines.append(f"... and {num_left} more {of}; `report --json` has all")
    return lines


def _alike(entries: Iterable[AttemptEntry]) -> list[Sequence[AttemptEntry]]:
    """Return attempts that ended for one reason together; those with steps each alone."""
    alike: dict[tuple[object, ...], list[AttemptEntry]] = {}
    for entry in entries:
        key: tuple[object, ...] = (entry.ending_text, *_reason(entry).without_place)
        if entry.num_steps is not None:
            key = (entry.slice_index, entry.attempt, entry.job_id, entry.start_unix_s)
        alike.setdefault(key, []).append(entry)
    return [*alike.values()]


def _reason(entry: AttemptEntry) -> Reason:
    return Reason(
        text=entry.reason,
        attempt=entry.attempt or 1,
        rank=entry.failed_rank,
        node=entry.failed_node,
    )


def _slices(entries: Iterable[AttemptEntry]) -> list[int]:
    return sorted({entry.slice_index for entry in entries})


def entry_name(entry: AttemptEntry) -> str:
    """Return `train, slice 0, attempt 1, job 12`."""
    return units.attempt_name(entry.stage, entry.slice_index, entry.attempt, entry.job_id)


def others_text(attempts: StageAttempts, shown: Sequence[AttemptEntry]) -> str:
    """Return how many slices and attempts a table leaves out; empty if none."""
    slices = {entry.slice_index for entry in shown}
    num_slices_left = attempts.num_explained - len(slices)
    of_shown = [entry for entry in attempts.entries if entry.slice_index in slices]
    num_earlier = len(of_shown) - len(shown)
    parts = [f"{num_earlier:,} earlier attempts"] if num_earlier else []
    parts += [f"{units.number_of('slice', num_slices_left)} more"] if num_slices_left else []
    return f"and {' and '.join(parts)}" if parts else ""


def entry_values(entry: AttemptEntry) -> Mapping[str, Any]:
    """Return an attempt as JSON values, with the sum of its lost time."""
    return {**asdict(entry), "lost_s": entry.lost_s}
