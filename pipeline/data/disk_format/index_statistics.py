"""Statistics of a data set from its index: lengths, learned tokens, images.

Columns are read block by block and counted by value: memory depends on the longest sample, not
on their number, and percentiles are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.index import DatasetIndex

PERCENTILES = (5, 25, 50, 75, 95, 99)


MAX_BINS = 16


_BLOCK_ROWS = 1 << 20


def index_statistics(index: DatasetIndex, info: DatasetInfo) -> dict[str, Any]:
    """Return statistics over all samples, as JSON values.

    `num_tokens`, `num_supervised_tokens` and `num_images` per sample, and `num_pixels` per
    stored image, each have `mean`, `min`, `p5` to `p99`, `max`. A percentile is the smallest
    value that this share of the samples does not exceed. `num_tokens_bins` and
    `num_images_bins` are lists of `[first, last, num_samples]`, both ends included; the last
    bin reaches to the longest sample. `supervised_share` is of all tokens. `image_size` is the
    width and height of every stored image, None where they differ (`native`).

    Raises:
        StageError: a column does not match its checksum.
    """
    tokens = _count(len(index), index.whole("num_tokens").__getitem__)
    supervised = _count(len(index), index.whole("num_supervised_tokens").__getitem__)
    images = _count(len(index), index.whole("num_images").__getitem__)
    size = None
    if info.image_width is not None and info.image_height is not None:
        size = [info.image_width, info.image_height]
    return {
        "num_samples": len(index),
        "num_tokens": summary(tokens),
        "num_supervised_tokens": summary(supervised),
        "supervised_share": _sum(supervised) / max(1, _sum(tokens)),
        "num_images": summary(images),
        "num_pixels": _pixels(index, info),
        "image_size": size,
        "num_tokens_bins": bins(tokens),
        "num_images_bins": bins(images),
    }


def summary(counts: np.ndarray, unit: int = 1) -> dict[str, float] | None:
    """Return mean, extremes and percentiles, where value `i * unit` occurs `counts[i]` times.

    None if there is no value.
    """
    num = int(counts.sum())
    if not num:
        return None
    present = np.flatnonzero(counts)
    not_above = np.cumsum(counts)
    ranks = {f"p{p}": math.ceil(p * num / 100) for p in PERCENTILES}
    return {
        "mean": _sum(counts) * unit / num,
        "min": int(present[0]) * unit,
        **{name: int(np.searchsorted(not_above, rank)) * unit for name, rank in ranks.items()},
        "max": int(present[-1]) * unit,
    }


def bins(counts: np.ndarray) -> list[list[int]]:
    """Return at most `MAX_BINS` equal bins up to the 99th percentile, and one for the rest.

    The width is a power of two, and bins begin at multiples of it.
    """
    facts = summary(counts)
    if facts is None:
        return []
    first, usual, last = (int(facts[name]) for name in ("min", "p99", "max"))
    width = 1
    while usual // width - first // width >= MAX_BINS:
        width *= 2
    listed = [
        [start, start + width - 1, int(counts[start : start + width].sum())]
        for start in range(first // width * width, usual + 1, width)
    ]
    if last > listed[-1][1]:
        start = listed[-1][1] + 1
        listed.append([start, last, int(counts[start:].sum())])
    listed[-1][1] = min(listed[-1][1], last)
    listed[0][0] = max(listed[0][0], first)
    return listed


def _pixels(index: DatasetIndex, info: DatasetInfo) -> dict[str, float] | None:
    """Return statistics of pixels per stored image; for several images of a sample, their mean."""
    unit = 1
    if info.patch_size is not None and info.merge_size is not None:
        unit = (info.patch_size * info.merge_size) ** 2  # a native image has whole units
    pixels, images = index.whole("num_pixels"), index.whole("num_images")

    def of(rows: slice) -> np.ndarray:
        has_any = images[rows] > 0
        return pixels[rows][has_any] // images[rows][has_any] // unit

    return summary(_count(len(index), of), unit)


def _count(num_rows: int, values_of: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Count how often each value occurs: int64 [largest value + 1]."""
    counts = np.zeros(1, dtype=np.int64)
    for start in range(0, num_rows, _BLOCK_ROWS):
        more = np.bincount(values_of(slice(start, start + _BLOCK_ROWS)), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts


def _sum(counts: np.ndarray) -> int:
    return int(np.dot(counts, np.arange(len(counts))))
