"""Causes of the failed slices of an array, equal ones as one line. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_jobs.base import units
from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.report.page.markup import Html, bullets
from slurm_jobs.run.attempt_history import AttemptEntry

_MAX_CAUSES = 12
_MAX_RANGES = 12


def failure_causes(failed: Iterable[int], attempts: Iterable[AttemptEntry]) -> Html:
    """Return a line for each reason why these slices failed, the most frequent first.

    Args:
        failed: slices of a stage, ascending.
        attempts: attempts at these slices, in the order of their starts.
    """
    last = {entry.slice_index: entry for entry in attempts}
    alike: dict[str, list[int]] = {}
    for index in failed:
        alike.setdefault(_reason(last.get(index)), []).append(index)
    causes = sorted(alike.items(), key=lambda cause: -len(cause[1]))
    lines = []
    for reason, slices in causes:
        number = units.number_of("slice", len(slices))
        lines.append(f"failed: {reason} ({number}: {some_slices(slices)})")
    if more := causes[_MAX_CAUSES:]:
        num = sum(len(slices) for _, slices in more)
        lines[_MAX_CAUSES:] = [f"and {num:,} for {len(more):,} more reasons, in report.json"]
    return bullets(lines)


def _reason(entry: AttemptEntry | None) -> str:
    """Return why an attempt failed, without its node: the same failure occurs on many nodes."""
    if entry is None or not entry.reason:
        return "no reason was written down"
    return entry.reason.replace(f" on {entry.node}:", ":").replace(f" on {entry.node} ", " ")


def some_slices(slices: Sequence[int]) -> str:
    """Return `0-3, 7`; of many ranges the first, and how many slices follow."""
    ranges = ranges_text(slices).split(",")
    more = len(slices) - len(parse_ranges(",".join(ranges[:_MAX_RANGES])))
    return ", ".join(ranges[:_MAX_RANGES]) + (f" and {more:,} more" if more else "")
