"""Slices of each array by their status: a strip in the order of the slices, and counts. PURE."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.report.page.bar_pieces import KINDS, key
from slurm_jobs.report.page.failure_causes import failure_causes, some_slices
from slurm_jobs.report.page.markup import Html, el
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.run.attempt_history import AttemptEntry
from slurm_jobs.status.slice_status import Status

_MAX_COLUMNS = 200
_SPACED_COLUMNS = 64
"""Up to this number there is a gap between columns."""
_LEAST_SHARE = 0.25
"""Of a column's height, for a status that any of its slices has."""
_HEIGHT = 24
_UNNAMED = frozenset({"completed", "waiting", "failed"})
"""Statuses whose slices are only counted; the causes of failures name theirs."""


def slices_by_status(report: RunReport) -> Html | None:
    """Return a strip and counts for each array that is not complete; None without one."""
    arrays = [
        stage
        for stage in report.stages
        if stage.num_completed < stage.num_tasks > 1 and stage.slices and not stage.is_former
    ]
    if not arrays:
        return None
    attempts = {of_stage.stage: of_stage.entries for of_stage in report.attempts}
    blocks = [_array(stage, attempts.get(stage.name, ())) for stage in arrays]
    return el("div", el("h3", "Slices by status"), blocks)


def _array(stage: StageNumbers, attempts: Sequence[AttemptEntry]) -> Html:
    slices_of = {status: parse_ranges(text) for status, text in stage.slices.items()}
    status_of: dict[int, Status] = {}
    for status, slices in slices_of.items():
        status_of.update(dict.fromkeys(slices, status))
    in_order = sorted(status_of)
    num = min(len(in_order), _MAX_COLUMNS)  # columns differ by at most one slice
    edges = [place * len(in_order) // num for place in range(num + 1)]
    columns = [in_order[begin:end] for begin, end in itertools.pairwise(edges)]
    counts = Counter(status_of.values())
    failed = slices_of.get("failed", ())
    numbers = ", ".join(f"{counts[status]:,} {status}" for status in _in_order(counts))
    more = None
    if len(columns) < len(status_of):
        note = (
            f"Each column stands for about {len(status_of) / len(columns):.0f} slices, in order. A "
            "status that few of them have is drawn larger than its share, so that it can be seen."
        )
        more = el("p", note, class_="dim")
    strip = el(
        "svg",
        [_column(place, column, status_of) for place, column in enumerate(columns)],
        viewBox=f"0 0 {len(columns)} {_HEIGHT}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        class_="spaced" if len(columns) <= _SPACED_COLUMNS else None,
        role="img",
        aria_label=f"slices of {stage.name} by status: {numbers}",
    )
    ends = [el("span", f"slice {index:,}") for index in (in_order[0], in_order[-1])]
    keys = []
    for status in _in_order(counts):
        text = f"{counts[status]:,} {status}"
        if status not in _UNNAMED:
            text += f": {some_slices(slices_of[status])}"
        keys.append(el("li", key(status), el("span", text, class_="name")))
    return el(
        "div",
        el("p", el("b", stage.name), f", {len(status_of):,} slices"),
        strip,
        el("div", ends, class_="ends"),
        el("ul", keys, class_="keys"),
        more,
        failure_causes(failed, attempts) if failed else None,
        class_="slices",
    )


def _in_order(counts: Mapping[Status, int]) -> list[Status]:
    return sorted(counts, key=list(KINDS).index)


def _column(place: int, column: Sequence[int], status_of: Mapping[int, Status]) -> Html:
    counts = Counter(status_of[index] for index in column)
    statuses = _in_order(counts)
    heights = [max(counts[status] / len(column), _LEAST_SHARE) for status in statuses]
    boxes, bottom = [], float(_HEIGHT)
    for status, height in zip(statuses, heights, strict=True):
        tall = _HEIGHT * height / sum(heights)
        bottom -= tall
        box = f"M{place},{bottom:.1f}h1v{tall:.1f}h-1z"
        boxes.append(el("path", d=box, class_=f"o-{status}"))
    which = f"slice {column[0]}" if len(column) == 1 else f"slices {column[0]}-{column[-1]}"
    numbers = ", ".join(f"{counts[status]} {status}" for status in statuses)
    title = f"{which}: {statuses[0] if len(column) == 1 else numbers}"
    return el("g", el("title", title), boxes)
