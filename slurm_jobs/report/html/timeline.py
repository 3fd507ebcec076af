"""The timeline of stages, array tasks and attempts as HTML: PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurm_jobs.report import words, words_projection
from slurm_jobs.report.html.charts import legend, stacked_bar
from slurm_jobs.report.html.markup import Html, el
from slurm_jobs.report.model.run import Bar, RunReport
from slurm_jobs.report.model.values import TimeShare

MAX_ROWS = 32
"""A stage with more slices is drawn as the number of running and waiting tasks."""

NUM_STAGE_TONES = 6
"""Tones of running stages in page.css (`k-running-0` and on)."""
_NUM_BINS = 160


def timeline_section(report: RunReport) -> Html:
    """Return the budget from submit to end, and the bars of attempts."""
    header = report.header
    span = (header.created_unix_s, max(header.last_unix_s, header.created_unix_s + 1e-3))
    by_stage: dict[str, list[Bar]] = {}
    for bar in report.bars:
        by_stage.setdefault(bar.stage, []).append(bar)
    rows = [_stage_rows(stage, bars, span) for stage, bars in by_stage.items()]
    middle = (span[0] + span[1]) / 2
    moments = [el("span", words.seconds(at - span[0])) for at in (span[0], middle, span[1])]
    shares = _shaded(report.timeline)
    return el(
        "section",
        el("h2", "From submit to end"),
        stacked_bar(shares, "from submit to end"),
        legend(shares, "from submit to end"),
        el("p", report.timeline_note, class_="note") if report.timeline_note else None,
        el("div", rows, el("div", moments, class_="moments"), class_="gantt"),
        _keys(),
        _cost(report),
        el("p", f"Starts {words.moment(span[0])}, ends {words.moment(span[1])}.", class_="dim"),
        id="timeline",
    )


def _cost(report: RunReport) -> Html:
    """Return the cost of the run, the use of its GPUs, and the projection."""
    pairs = [("taken", words_projection.taken(report.cost) or words.NOT_KNOWN)]
    pairs += [("GPUs held for", line) for line in words_projection.parts(report.cost)]
    currency = report.cost.currency
    pairs += [("ahead", words_projection.ahead(p, currency)) for p in report.projections]
    return el("dl", [[el("dt", name), el("dd", text)] for name, text in pairs], class_="cost")


def _shaded(shares: Sequence[TimeShare]) -> list[TimeShare]:
    """Give the stages alternating shades."""
    running = [share.name for share in shares if share.kind == "running"]
    return [
        replace(share, kind=f"running-{running.index(share.name) % NUM_STAGE_TONES}")
        if share.kind == "running"
        else share
        for share in shares
    ]


def _keys() -> Html:
    kinds = (
        ("queued", "waits in the queue"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("stopped", "asked to stop, saved"),
        (_tone("cancelled"), "cancelled"),
        ("running", "running"),
        ("unknown", "end not known"),
    )
    keys = [
        el("li", el("span", class_=f"key o-{kind}"), el("span", name, class_="name"))
        for kind, name in kinds
    ]
    return el("ul", keys, class_="keys")


def _tone(outcome: str) -> str:
    """Return the tone of an outcome; cancelled and fenced attempts share a neutral one."""
    return "superseded" if outcome == "cancelled" else outcome


def _stage_rows(stage: str, bars: Sequence[Bar], span: tuple[float, float]) -> list[Html]:
    slices = sorted({bar.slice_index for bar in bars})
    if len(slices) > MAX_ROWS:
        return [_row(f"{stage} x {len(slices):,}", [_crowd(bars, span)], "tall")]
    rows = []
    for index in slices:
        name = stage if len(slices) == 1 else f"{stage} {index}"
        boxes = [box for bar in bars if bar.slice_index == index for box in _boxes(bar, span)]
        rows.append(_row(name, boxes, ""))
    return rows


def _row(name: str, boxes: Sequence[Html], more: str) -> Html:
    lane = el("div", boxes, class_=f"lane {more}".strip())
    return el("div", el("span", name, class_="label", title=name), lane, class_="row")


def _boxes(bar: Bar, span: tuple[float, float]) -> list[Html]:
    """Return the wait in a lighter tone, then the attempt."""
    boxes = []
    if bar.eligible_unix_s is not None and bar.eligible_unix_s < bar.start_unix_s:
        wait = bar.start_unix_s - bar.eligible_unix_s
        title = f"{bar.stage} {bar.slice_index}: {words.seconds(wait)} in the queue"
        boxes.append(_box(bar.eligible_unix_s, bar.start_unix_s, span, "queued", title))
    title = (
        f"{bar.stage}, slice {bar.slice_index}, "
        f"{f'attempt {bar.attempt}' if bar.attempt else 'no attempt record'}, job {bar.job_id} on "
        f"{bar.node}: {bar.outcome} after {words.seconds(bar.end_unix_s - bar.start_unix_s)}"
    )
    if bar.reason:
        title += f" ({bar.reason})"
    boxes.append(_box(bar.start_unix_s, bar.end_unix_s, span, bar.outcome, title))
    return boxes


def _box(start: float, end: float, span: tuple[float, float], kind: str, title: str) -> Html:
    whole = span[1] - span[0]
    left = min(max((start - span[0]) / whole, 0.0), 1.0)
    width = min(max((end - start) / whole, 0.0), 1.0 - left)
    style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
    return el("span", class_=f"box o-{_tone(kind)}", style=style, title=title)


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
    return el(
        "svg",
        _area(running + waiting, most, "queued"),
        _area(running, most, "completed"),
        viewBox=f"0 0 {_NUM_BINS - 1} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"tasks over time, at most {int(running.max())} running at once",
    )


def _area(counts: np.ndarray, most: int, kind: str) -> Html:
    tops = " L".join(f"{i},{100 - 100 * int(c) / most:.1f}" for i, c in enumerate(counts))
    return el("path", d=f"M0,100 L{tops} L{_NUM_BINS - 1},100 Z", class_=f"area o-{kind}")
