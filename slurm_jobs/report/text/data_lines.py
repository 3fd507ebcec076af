"""Statistics of a data set, in lines for a terminal. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.base.quantities import Quantity
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.data_statistics import Bin, DataStatistics
from slurm_jobs.report.values.mixed_manifests import MixedManifest

MIXTURE_COLUMNS = ("manifest", "rows", "no sample", "samples", "share", "tokens", "share of tokens")


def counts_of_rows(numbers: DataNumbers) -> dict[str, Quantity]:
    """Return what became of the rows of a manifest, by name."""
    held_out = {} if numbers.num_held_out is None else {"held out": numbers.num_held_out}
    return {
        "rows": numbers.num_rows,
        "samples": numbers.num_samples,
        **held_out,
        "without a picture": numbers.num_text_samples,
        "rejected": numbers.num_rejects,
        "of these too long": numbers.num_too_long,
        "truncated": numbers.num_truncated,
        "tokens": numbers.num_tokens,
        "mean length": numbers.mean_tokens,
    }


def mixture_rows(mixture: Sequence[MixedManifest]) -> list[tuple[str, ...]]:
    """Return a row for each manifest of a data set, with the cells of `MIXTURE_COLUMNS`."""
    num_samples = max(1, sum(manifest.num_samples for manifest in mixture))
    num_tokens = max(1, sum(manifest.num_tokens for manifest in mixture))
    return [
        (
            manifest.name,
            f"{manifest.num_rows:,}",
            f"{manifest.num_rejected:,}",
            f"{manifest.num_samples:,}",
            units.percent(manifest.num_samples / num_samples),
            f"{manifest.num_tokens:,}",
            units.percent(manifest.num_tokens / num_tokens),
        )
        for manifest in mixture
    ]


def statistics_lines(numbers: DataStatistics) -> list[str]:
    """Return two lines for a terminal, three if images differ in size."""
    tokens, images = numbers.num_tokens, numbers.num_images
    has_images = images["max"] > 0
    size = ""
    if has_images and numbers.image_size is not None:
        size = f"; stored at {size_text(*numbers.image_size)}"
    lines = [
        (
            f"tokens a sample: median {tokens['p50']:,.0f}, p95 {tokens['p95']:,.0f}, "
            f"max {tokens['max']:,.0f}; {units.percent(numbers.supervised_share)} supervised"
        ),
        (
            f"images a sample: mean {units.significant(images['mean'])}, "
            f"max {images['max']:,.0f}{size}"
        ),
    ]
    if has_images and numbers.image_size is None and numbers.num_pixels is not None:
        pixels = numbers.num_pixels
        lines.append(
            f"pixels an image: median {pixels['p50']:,.0f}, p95 {pixels['p95']:,.0f}, "
            f"max {pixels['max']:,.0f}"
        )
    return lines


def size_text(width: int, height: int) -> str:
    """Return `640x480`."""
    return f"{width}x{height}"


def bin_text(given: Bin) -> str:
    """Return `128 to 255`, `7`."""
    first, last, _ = given
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
