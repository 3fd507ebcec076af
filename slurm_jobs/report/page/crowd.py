"""Attempts of a large array over time, as areas in the colours of their outcomes. PURE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_jobs.report.page.bar_pieces import KINDS, pieces
from slurm_jobs.report.page.markup import Html, el
from slurm_jobs.report.steps.intervals import Interval
from slurm_jobs.report.values.stage_model import Bar

_NUM_BINS = 160
_LEAST_HEIGHT = 0.04
"""Of the height, for a kind that occurs in a bin: three failures of thousands remain visible."""
_LEAST_WIDTH = 0.01
"""Of a bin, for an attempt of no length."""


def crowd(bars: Sequence[Bar], span: Interval, label: str) -> Html:
    """Return the mean number of waiting, starting and running attempts in each bin of the span."""
    edges = np.linspace(0.0, span[1] - span[0], _NUM_BINS + 1)
    intervals: dict[str, list[Interval]] = {}
    for piece in (piece for bar in bars for piece in pieces(bar)):
        times = (piece.start_unix_s - span[0], piece.end_unix_s - span[0])
        intervals.setdefault(piece.kind, []).append(times)
    kinds = [kind for kind in KINDS if kind in intervals]
    means = np.array([_mean_number(intervals[kind], edges) for kind in kinds])
    shares = means / max(1e-9, float(means.sum(axis=0).max()))
    heights = np.where(means > _LEAST_WIDTH / 2, np.maximum(shares, _LEAST_HEIGHT), 0.0)
    heights /= max(1.0, float(heights.sum(axis=0).max()))
    tops = 100 * (1 - np.cumsum(heights, axis=0))
    areas = [
        el("path", d=_steps(top, 100 * height), class_=f"o-{kind}")
        for kind, top, height in zip(kinds, tops, heights, strict=True)
    ]
    return el(
        "svg",
        areas,
        viewBox=f"0 0 {_NUM_BINS} 100",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        role="img",
        aria_label=label,
    )


def _mean_number(intervals: Sequence[Interval], edges: np.ndarray) -> np.ndarray:
    """Return how many intervals hold at once, as the mean over each bin."""
    width = float(edges[1] - edges[0])
    starts, ends = np.array(intervals).T
    ends = np.maximum(ends, starts + _LEAST_WIDTH * width)
    mean: np.ndarray = np.diff(_time_since(starts, edges) - _time_since(ends, edges)) / width
    return mean


def _time_since(moments: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the sum of the times since each of the moments that are past."""
    ordered = np.sort(moments)
    num_past = np.searchsorted(ordered, at, "right")
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    time: np.ndarray = num_past * at - sums[num_past]
    return time


def _steps(tops: np.ndarray, heights: np.ndarray) -> str:
    """Return a path with a rectangle for each run of equal bins."""
    path = []
    begin = 0
    boxes = [(f"{top:.1f}", f"{height:.1f}") for top, height in zip(tops, heights, strict=True)]
    for place in range(1, len(boxes) + 1):
        if place < len(boxes) and boxes[place] == boxes[begin]:
            continue
        top, height = boxes[begin]
        if float(height) > 0:
            path.append(f"M{begin},{top}h{place - begin}v{height}h-{place - begin}z")
        begin = place
    return "".join(path)
