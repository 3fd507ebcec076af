"""Causes of the failed slices of an array, equal ones as one line. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_jobs.report.markup import Html, bullets
from slurm_jobs.report.report_model import Bar
from slurm_jobs.shared import units
from slurm_jobs.shared.files import parse_ranges, ranges_text

_MAX_CAUSES = 12
_MAX_RANGES = 12


def failure_causes(failed: Iterable[int], bars: Iterable[Bar]) -> Html:
    """Return a line for each reason why these slices failed, the most frequent first.

    Args:
        failed: slices of a stage, ascending.
        bars: attempts of that stage, in the order of their starts.
    """
    last = {bar.slice_index: bar for bar in bars}
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


def _reason(bar: Bar | None) -> str:
    """Return why an attempt failed, without its node: the same failure occurs on many nodes."""
    if bar is None or not bar.reason:
        return "no reason was written down"
    return bar.reason.replace(f" on {bar.node}:", ":").replace(f" on {bar.node} ", " ")


def some_slices(slices: Sequence[int]) -> str:
    """Return `0-3, 7`; of many ranges the first, and how many slices follow."""
    ranges = ranges_text(slices).split(",")
    more = len(slices) - len(parse_ranges(",".join(ranges[:_MAX_RANGES])))
    return ", ".join(ranges[:_MAX_RANGES]) + (f" and {more:,} more" if more else "")
