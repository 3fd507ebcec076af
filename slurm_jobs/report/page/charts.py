"""Charts as HTML and inline SVG, drawn here so that the page needs no script. PURE.

Bars are HTML boxes in percent of the width, lines are SVG stretched to the box, and all text is
HTML, so that it stays readable at any width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare, shown
from slurm_jobs.report.page.markup import Html, el, join

_WIDTH, _HEIGHT = 1000.0, 240.0
"""SVG coordinates; the page stretches them."""

_AXIS_STYLE = "white-space:nowrap;grid-template-columns:minmax(52px,max-content) 1fr"
"""A label such as `0.00135` is wider than most: the axis shrinks, no label wraps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartLine:
    """Line of a chart: its name, CSS class suffix and values, NaN where there is none."""

    name: str
    kind: str
    values: Sequence[float]


def stacked_bar(shares: Sequence[TimeShare], label: str) -> Html:
    """Return shares next to each other over the whole width."""
    boxes = [
        el(
            "span",
            class_=f"seg k-{share.kind}",
            style=f"width:{100 * max(0.0, share.share):.3f}%",
            title=f"{share.name}: {units.seconds(share.seconds)}, {units.percent(share.share)}",
        )
        for share in shares
        if share.share > 0
    ]
    text = "; ".join(f"{s.name} {units.percent(s.share)}" for s in shown(shares))
    return el("div", boxes, class_="stack", role="img", aria_label=f"{label}: {text}")


def bar_with_legend(shares: Sequence[TimeShare], label: str, whole: str) -> Html:
    """Return a stacked bar and a legend of the shares with their seconds; `whole` is their sum."""
    items = [
        el(
            "li",
            el("span", class_=f"key k-{share.kind}"),
            el("span", share.name, class_="name"),
            el("span", units.percent(share.share), class_="num"),
            el("span", units.seconds(share.seconds), class_="num dim"),
        )
        for share in shown(shares)
    ]
    return join([stacked_bar(shares, label), el("ul", items, class_="legend", aria_label=whole)])


def line_chart(
    title: str,
    x: Sequence[float],
    series: Sequence[ChartLine],
    *,
    unit: str,
    marks: Sequence[float] = (),
    from_zero: bool = True,
) -> Html:
    """Return lines over the steps; `marks` are dashed verticals (resumes)."""
    low, high = _y_range(series, from_zero=from_zero)
    first, last = x[0], max(x[-1], x[0] + 1)

    def place_x(value: float) -> str:
        return _num((value - first) / (last - first) * _WIDTH)

    def place_y(value: float) -> str:
        return _num(_HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low)))

    grid = [
        el("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid")
        for y in (0.5, _HEIGHT / 2, _HEIGHT - 0.5)
    ]
    resumes = [
        el("line", x1=place_x(mark), x2=place_x(mark), y1=0, y2=_HEIGHT, class_="mark")
        for mark in marks
        if first <= mark <= last
    ]
    lines, names = [], []
    for line in series:
        points = " ".join(
            f"{place_x(at)},{place_y(value)}"
            for at, value in zip(x, line.values, strict=True)
            if math.isfinite(value)
        )
        lines.append(el("polyline", points=points, class_=f"line s-{line.kind}"))
        key = el("span", class_=f"key s-{line.kind}")
        names.append(el("li", key, el("span", line.name, class_="name")))
    box = el(
        "svg",
        grid,
        resumes,
        lines,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )
    ticks = [el("span", units.significant(v)) for v in (high, (low + high) / 2, low)]
    steps = [el("span", f"{v:,.0f}") for v in (first, (first + last) / 2, last)]
    return el(
        "figure",
        el("figcaption", el("b", title), f" {unit}", class_="cap"),
        el("ul", names, class_="keys") if len(series) > 1 else None,
        el(
            "div",
            el("div", ticks, class_="ticks"),
            el("div", box, class_="plot"),
            el("div", steps, class_="steps"),
            class_="chart",
            style=_AXIS_STYLE,
        ),
    )


def _y_range(series: Sequence[ChartLine], *, from_zero: bool) -> tuple[float, float]:
    """Return the displayed range; single spikes far above the rest are cut off."""
    values = sorted(v for line in series for v in line.values if math.isfinite(v))
    if not values:
        return 0.0, 1.0
    usual = values[int(0.98 * (len(values) - 1))]
    high = min(values[-1], 1.5 * usual) if usual > 0 else values[-1]
    low = 0.0 if from_zero else values[0]
    return low, high if high > low else low + max(1.0, abs(low))


def _num(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def count_bars(rows: Sequence[tuple[str, float]], label: str) -> Html:
    """Return a horizontal bar per row, relative to the largest."""
    most = max((count for _, count in rows), default=0) or 1
    items = [
        el(
            "li",
            el("span", name, class_="name"),
            el("span", el("span", style=f"width:{100 * count / most:.1f}%"), class_="track"),
            el("span", units.count(count), class_="num"),
        )
        for name, count in rows
    ]
    return el("ul", items, class_="counts", aria_label=label)
