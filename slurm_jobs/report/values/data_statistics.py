"""Statistics of a data set from `consolidate` and `samples`. PURE.

The values are those of `pipeline.data.disk_format.index_statistics`, which documents them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SUMMARY = ("mean", "min", "p5", "p25", "p50", "p75", "p95", "p99", "max")

Bin = tuple[int, int, int]
"""First and last value, both included, and the number of samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataStatistics:
    """Statistics of all samples. A summary has `mean`, `min`, `p5` to `p99` and `max`."""

    num_samples: int
    num_tokens: Mapping[str, float]
    """Per sample, like the next two."""
    num_supervised_tokens: Mapping[str, float]
    num_images: Mapping[str, float]
    """Stored images: of tiled images, all tiles."""
    num_pixels: Mapping[str, float] | None
    """Per stored image; None if there are none."""
    supervised_share: float
    """Share of all tokens."""
    image_size: tuple[int, int] | None
    """Width and height of every stored image; None if they differ."""
    num_tokens_bins: tuple[Bin, ...]
    num_images_bins: tuple[Bin, ...]


def read_statistics(values: object) -> DataStatistics | None:
    """Return the statistics in a stage's result; None if missing or of another version."""
    if not isinstance(values, Mapping):
        return None
    try:
        size = values["image_size"]
        return DataStatistics(
            num_samples=values["num_samples"],
            num_tokens=_summary(values["num_tokens"]),
            num_supervised_tokens=_summary(values["num_supervised_tokens"]),
            num_images=_summary(values["num_images"]),
            num_pixels=None if values["num_pixels"] is None else _summary(values["num_pixels"]),
            supervised_share=float(values["supervised_share"]),
            image_size=None if size is None else (int(size[0]), int(size[1])),
            num_tokens_bins=_bins(values["num_tokens_bins"]),
            num_images_bins=_bins(values["num_images_bins"]),
        )
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _summary(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: values[name] + 0 for name in SUMMARY}


def _bins(values: Sequence[Sequence[int]]) -> tuple[Bin, ...]:
    return tuple((int(first), int(last), int(num)) for first, last, num in values)
