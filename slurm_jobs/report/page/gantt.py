"""From submit to end: the run's budget, and the bars of its attempts. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.report.page.bar_pieces import KINDS, BarPiece, key, kinds_of, pieces
from slurm_jobs.report.page.charts import bar_with_legend
from slurm_jobs.report.page.crowd import crowd
from slurm_jobs.report.page.markup import Html, el
from slurm_jobs.report.page.slice_strip import slices_by_status
from slurm_jobs.report.steps.intervals import Interval, max_overlap
from slurm_jobs.report.text import cost_sentences
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import Bar

_MAX_SLICES = 32
"""A stage with more slices is drawn as the number of its attempts over time."""
_NUM_STAGE_TONES = 6
"""Tones of running stages in page.css (`k-running-0` and on)."""


def timeline_section(report: RunReport) -> Html:
    """Return the budget from submit to end, the bars of attempts, the cost and the projection."""
    header, cost = report.header, report.cost
    span = (header.created_unix_s, max(header.last_unix_s, header.created_unix_s + 1e-3))
    by_stage: dict[str, list[Bar]] = {}
    for bar in report.bars:
        by_stage.setdefault(bar.stage, []).append(bar)
    rows = [_stage_rows(stage, bars, span) for stage, bars in by_stage.items()]
    moments = [units.seconds(at - span[0]) for at in (span[0], (span[0] + span[1]) / 2, span[1])]
    running = [share.name for share in report.timeline if share.kind == "running"]
    shares = []
    for share in report.timeline:
        kind = share.kind
        if kind == "running":  # stages have alternating shades
            kind = f"running-{running.index(share.name) % _NUM_STAGE_TONES}"
        shares.append(replace(share, kind=kind))
    costs = [("taken", cost_sentences.taken(cost) or units.NOT_KNOWN)]
    costs += [("GPUs held for", line) for line in cost_sentences.parts(cost)]
    costs += [("ahead", cost_sentences.ahead(p, cost.currency)) for p in report.projections]
    return el(
        "section",
        el("h2", "From submit to end"),
        bar_with_legend(shares, "from submit to end", "from submit to end"),
        el("p", report.timeline_note, class_="note") if report.timeline_note else None,
        el(
            "div",
            rows,
            el("div", [el("span", moment) for moment in moments], class_="moments"),
            class_="gantt",
        ),
        el(
            "ul",
            [
                el("li", key(kind), el("span", KINDS[kind], class_="name"))
                for kind in kinds_of(report.bars)
            ],
            class_="keys",
        ),
        slices_by_status(report),
        el("dl", [[el("dt", name), el("dd", text)] for name, text in costs], class_="cost"),
        el(
            "p",
            f"The run starts at {units.moment(span[0])} and ends at {units.moment(span[1])}.",
            class_="dim",
        ),
        id="timeline",
    )


def _stage_rows(stage: str, bars: Sequence[Bar], span: Interval) -> list[Html]:
    """Return a row of boxes for each slice, or one of the attempts over time if there are many."""
    slices = sorted({bar.slice_index for bar in bars})
    if len(slices) > _MAX_SLICES:
        most = max_overlap((bar.start_unix_s, bar.end_unix_s) for bar in bars)
        name, at_once = f"{stage} x {len(slices):,}", f"at most {most:,} at once"
        areas = crowd(bars, span, f"attempts of {stage} over time, {at_once}")
        return [_row(name, el("div", areas, class_="lane tall"), at_once)]
    of_slice: dict[int, list[Html]] = {}
    for bar in bars:
        of_slice.setdefault(bar.slice_index, []).extend(_boxes(bar, span))
    return [
        _row(stage if len(slices) == 1 else f"{stage} {index}", el("div", boxes, class_="lane"))
        for index, boxes in sorted(of_slice.items())
    ]


def _row(name: str, lane: Html, note: str | None = None) -> Html:
    label = el("span", name, el("span", note, class_="dim") if note else None, class_="label")
    return el("div", label, lane, class_="row", title=name)


def _boxes(bar: Bar, span: Interval) -> Iterator[Html]:
    whole = span[1] - span[0]
    for piece in pieces(bar):
        left = min(max((piece.start_unix_s - span[0]) / whole, 0.0), 1.0)
        width = min(max((piece.end_unix_s - piece.start_unix_s) / whole, 0.0), 1.0 - left)
        style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
        yield el("span", class_=f"box o-{piece.kind}", style=style, title=_title(bar, piece))


def _title(bar: Bar, piece: BarPiece) -> str:
    lasted = units.seconds(piece.end_unix_s - piece.start_unix_s)
    if piece.kind == "queued":
        return f"{bar.stage} {bar.slice_index}: {lasted} in the queue"
    if piece.kind == "startup":
        return f"{bar.stage} {bar.slice_index}: {lasted} until the job had started up"
    attempt = f"attempt {bar.attempt}" if bar.attempt else "no attempt record"
    reason = f" ({bar.reason})" if bar.reason else ""
    return (
        f"{bar.stage}, slice {bar.slice_index}, {attempt}, job {bar.job_id} on {bar.node}: "
        f"{bar.outcome} after {lasted}{reason}"
    )
