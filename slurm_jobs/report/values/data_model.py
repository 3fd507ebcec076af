"""Results of preprocessing and of evaluation as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.base.quantities import Quantity
from slurm_jobs.report.values.data_statistics import DataStatistics
from slurm_jobs.report.values.mixed_manifests import MixedManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationNumbers:
    """Evaluation results of one stage."""

    stage: str
    numbers: Mapping[str, float]
    """By name, nested ones joined by a dot; whole numbers stay whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNumbers:
    """Result of preprocessing the manifest."""

    stage: str
    num_slices_reported: int
    num_slices: int
    num_rows: Quantity
    num_samples: Quantity
    num_held_out: Quantity | None
    """Rows that are evaluated instead of trained on; None if the config holds out none."""
    num_rejects: Quantity
    num_too_long: Quantity
    num_tokens: Quantity
    mean_tokens: Quantity
    num_shards: Quantity
    num_truncated: Quantity
    num_text_samples: Quantity
    """Samples without a picture."""
    is_text_meant: bool
    """True if `text_only` of the stage that consolidates the samples, or else of this one, is."""
    row_notes: tuple[tuple[str, int], ...]
    """Kind of a note on rows (`RowNote`), and the number of its samples, most frequent first."""
    rejects: tuple[tuple[str, int], ...]
    """Reason and count, most frequent first. `too_long` and image limits are the config's choice;
    `num_too_long` counts them all."""
    length_counts: tuple[tuple[int, int], ...]
    """Samples by length: upper bound of the bin in tokens (a power of two), and count."""
    work_s: Mapping[str, float]
    """Seconds of decoding and resizing, storing, tokenising and writing, summed over the slices."""
    stored_image: Mapping[str, float]
    """`bytes`, `decode_ms` and, for lossy formats, `psnr_db` of a stored image: means over those
    that each slice read back."""
    statistics: DataStatistics | None
    """Statistics of the whole data set, once `consolidate` has finished it."""
    mixture: tuple[MixedManifest, ...]
    """Manifests in the same data set, if there are several."""
