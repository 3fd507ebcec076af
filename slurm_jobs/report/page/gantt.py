"""From submit to end: the run's budget, and the bars of its attempts. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurm_jobs.report import sentences
from slurm_jobs.report.markup import Html, bar_with_legend, el
from slurm_jobs.report.report_model import Bar, RunReport
from slurm_jobs.shared import units

_MAX_SLICES = 32
"""A stage with more slices is drawn as the number of running and waiting tasks."""
_NUM_BINS = 160
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
    shares = [  # stages have alternating shades
        replace(share, kind=f"running-{running.index(share.name) % _NUM_STAGE_TONES}")
        if share.kind == "running"
        else share
        for share in report.timeline
    ]
    keys = {
        "queued": "waits in the queue",
        "completed": "completed",
        "failed": "failed",
        "stopped": "asked to stop, saved",
        _tone("cancelled"): "cancelled",
        "running": "running",
        "unknown": "end not known",
    }
    costs = [("taken", sentences.taken(cost) or units.NOT_KNOWN)]
    costs += [("GPUs held for", line) for line in sentences.parts(cost)]
    costs += [("ahead", sentences.ahead(p, cost.currency)) for p in report.projections]
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
                el("li", el("span", class_=f"key o-{kind}"), el("span", name, class_="name"))
                for kind, name in keys.items()
            ],
            class_="keys",
        ),
        el("dl", [[el("dt", name), el("dd", text)] for name, text in costs], class_="cost"),
        el("p", f"Starts {units.moment(span[0])}, ends {units.moment(span[1])}.", class_="dim"),
        id="timeline",
    )


def _tone(outcome: str) -> str:
    """Return the tone of an outcome; cancelled and fenced attempts share a neutral one."""
    return "superseded" if outcome == "cancelled" else outcome


def _stage_rows(stage: str, bars: Sequence[Bar], span: tuple[float, float]) -> list[Html]:
    """Return a row of boxes for each slice, or one of the tasks over time if there are many."""
    slices = sorted({bar.slice_index for bar in bars})
    if len(slices) > _MAX_SLICES:
        lanes = {f"{stage} x {len(slices):,}": el("div", _crowd(bars, span), class_="lane tall")}
    else:
        lanes = {
            (stage if len(slices) == 1 else f"{stage} {index}"): el(
                "div",
                [_boxes(bar, span) for bar in bars if bar.slice_index == index],
                class_="lane",
            )
            for index in slices
        }
    return [
        el("div", el("span", name, class_="label", title=name), lane, class_="row")
        for name, lane in lanes.items()
    ]


def _boxes(bar: Bar, span: tuple[float, float]) -> list[Html]:
    """Return the wait in a lighter tone, then the attempt."""
    whole, boxes = span[1] - span[0], []

    def box(start: float, end: float, kind: str, title: str) -> Html:
        left = min(max((start - span[0]) / whole, 0.0), 1.0)
        width = min(max((end - start) / whole, 0.0), 1.0 - left)
        style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
        return el("span", class_=f"box o-{_tone(kind)}", style=style, title=title)

    if bar.eligible_unix_s is not None and bar.eligible_unix_s < bar.start_unix_s:
        wait = units.seconds(bar.start_unix_s - bar.eligible_unix_s)
        title = f"{bar.stage} {bar.slice_index}: {wait} in the queue"
        boxes.append(box(bar.eligible_unix_s, bar.start_unix_s, "queued", title))
    attempt = f"attempt {bar.attempt}" if bar.attempt else "no attempt record"
    title = (
        f"{bar.stage}, slice {bar.slice_index}, {attempt}, job {bar.job_id} on {bar.node}: "
        f"{bar.outcome} after {units.seconds(bar.end_unix_s - bar.start_unix_s)}"
        f"{f' ({bar.reason})' if bar.reason else ''}"
    )
    return [*boxes, box(bar.start_unix_s, bar.end_unix_s, bar.outcome, title)]


def _crowd(bars: Sequence[Bar], span: tuple[float, float]) -> Html:
    """Return the number of waiting and running tasks over time, as two areas."""
    at = np.linspace(*span, _NUM_BINS)
    starts = np.sort([bar.start_unix_s for bar in bars])
    ends = np.sort([bar.end_unix_s for bar in bars])
    waits = [b for b in bars if b.eligible_unix_s is not None]
    queued = np.sort([min(b.eligible_unix_s or 0.0, b.start_unix_s) for b in waits])
    begun = np.sort([bar.start_unix_s for bar in waits])
    running = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")
    waiting = np.searchsorted(queued, at, "right") - np.searchsorted(begun, at, "right")
    most = max(1, int((running + waiting).max()))
    areas = []
    for counts, kind in ((running + waiting, "queued"), (running, "completed")):
        tops = " L".join(f"{i},{100 - 100 * int(c) / most:.1f}" for i, c in enumerate(counts))
        path = f"M0,100 L{tops} L{_NUM_BINS - 1},100 Z"
        areas.append(el("path", d=path, class_=f"area o-{kind}"))
    return el(
        "svg",
        areas,
        viewBox=f"0 0 {_NUM_BINS - 1} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"tasks over time, at most {int(running.max())} running at once",
    )
