"""Charts as HTML and inline SVG, drawn here so that the page needs no script: PURE.

Bars are HTML boxes in percent of the width, lines are SVG stretched to the
box, and all text is HTML, so that it stays readable at any width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_jobs.report import words
from slurm_jobs.report.html.markup import Html, el
from slurm_jobs.report.model.values import TimeShare, shown

_WIDTH, _HEIGHT = 1000.0, 240.0
"""SVG coordinates; the page stretches them."""

_AXIS_STYLE = "white-space:nowrap;grid-template-columns:minmax(52px,max-content) 1fr"
"""A label such as `0.00135` is wider than most: the axis shrinks, no label wraps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
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
            title=f"{share.name}: {words.seconds(share.seconds)}, {words.percent(share.share)}",
        )
        for share in shares
        if share.share > 0
    ]
    text = "; ".join(f"{s.name} {words.percent(s.share)}" for s in shown(shares))
    return el("div", boxes, class_="stack", role="img", aria_label=f"{label}: {text}")


def legend(shares: Sequence[TimeShare], what: str) -> Html:
    """Return a legend of the shares with their seconds; `what` is their whole."""
    items = [
        el(
            "li",
            el("span", class_=f"key k-{share.kind}"),
            el("span", share.name, class_="name"),
            el("span", words.percent(share.share), class_="num"),
            el("span", words.seconds(share.seconds), class_="num dim"),
        )
        for share in shown(shares)
    ]
    return el("ul", items, class_="legend", aria_label=what)


def line_chart(
    title: str,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    unit: str,
    marks: Sequence[float] = (),
    from_zero: bool = True,
) -> Html:
    """Return lines over the steps; `marks` are dashed verticals (resumes)."""
    low, high = _y_range(series, from_zero=from_zero)
    x_range = (x[0], max(x[-1], x[0] + 1))
    box = el(
        "svg",
        _grid(),
        [_mark(mark, x_range) for mark in marks if x_range[0] <= mark <= x_range[1]],
        [_line(one, x, x_range, (low, high)) for one in series],
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )
    ticks = [el("span", words.significant(v)) for v in (high, (low + high) / 2, low)]
    steps = [el("span", f"{v:,.0f}") for v in (x_range[0], sum(x_range) / 2, x_range[1])]
    return el(
        "figure",
        el("figcaption", el("b", title), f" {unit}", class_="cap"),
        _names(series) if len(series) > 1 else None,
        el(
            "div",
            el("div", ticks, class_="ticks"),
            el("div", box, class_="plot"),
            el("div", steps, class_="steps"),
            class_="chart",
            style=_AXIS_STYLE,
        ),
    )


def _grid() -> list[Html]:
    heights = (0.5, _HEIGHT / 2, _HEIGHT - 0.5)
    return [el("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid") for y in heights]


def _place_x(value: float, x_range: tuple[float, float]) -> float:
    return (value - x_range[0]) / (x_range[1] - x_range[0]) * _WIDTH


def _mark(value: float, x_range: tuple[float, float]) -> Html:
    x = _num(_place_x(value, x_range))
    return el("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="mark")


def _line(
    one: Series, x: Sequence[float], x_range: tuple[float, float], y_range: tuple[float, float]
) -> Html:
    points = _points([_place_x(value, x_range) for value in x], one.values, *y_range)
    return el("polyline", points=points, class_=f"line s-{one.kind}")


def _names(series: Sequence[Series]) -> Html:
    names = [
        el("li", el("span", class_=f"key s-{one.kind}"), el("span", one.name, class_="name"))
        for one in series
    ]
    return el("ul", names, class_="keys")


def _y_range(series: Sequence[Series], *, from_zero: bool) -> tuple[float, float]:
    """Return the displayed range; single spikes far above the rest are cut off."""
    values = sorted(v for one in series for v in one.values if math.isfinite(v))
    if not values:
        return 0.0, 1.0
    usual = values[int(0.98 * (len(values) - 1))]
    high = min(values[-1], 1.5 * usual) if usual > 0 else values[-1]
    low = 0.0 if from_zero else values[0]
    return low, high if high > low else low + max(1.0, abs(low))


def _points(x: Sequence[float], values: Sequence[float], low: float, high: float) -> str:
    pairs = []
    for at, value in zip(x, values, strict=True):
        if math.isfinite(value):
            y = _HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low))
            pairs.append(f"{_num(at)},{_num(y)}")
    return " ".join(pairs)


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
            el("span", words.count(count), class_="num"),
        )
        for name, count in rows
    ]
    return el("ul", items, class_="counts", aria_label=label)
