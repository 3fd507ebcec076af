"""Config of reading in the `train` stage: composition of batches, changes of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from slurm_jobs.common.config_values import (
    Bounds,
    Count,
    PathOrAddress,
    Share,
    ShareBelowOne,
    check_bounds,
)

MOST_TOKENS = 2**31 - 1
"""Most tokens of a row: attention kernels take segment ends as int32."""

PackingStrategy = Literal["exact", "none", "constrained", "greedy", "ffd", "bfd", "knapsack"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchingConfig:
    """Composition of batches and of their rows."""

    kind: Literal["shuffled", "grouped", "packed", "auto"] = "shuffled"
    """`shuffled`: one sample in each row, in random order, padded to the longest of the microbatch.
    `grouped`: one sample in each row, samples of similar length in a batch, with little padding.
    `packed`: several samples in each row that never see each other, with almost no padding. `auto`:
    `grouped` or `packed`, whichever was faster when the training began."""
    strategy: PackingStrategy = "exact"
    """Method by which `packed` fills rows: `exact` searches samples that fill a row to the last
    token; the others are common heuristics, for comparison."""
    max_tokens: Annotated[int, Bounds(ge=1, le=MOST_TOKENS)] | None = None
    """`packed`: tokens of a row; null takes the data set's own limit (`max_tokens` of
    `preprocess`). No sample may be longer."""
    max_images: Count | None = None
    """`packed`: most images in a row; null for no limit."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig:
    """Random changes of pictures when they are read. They depend on `seed`, epoch and sample."""

    mirror_share: Share = 0.0
    """Share of pictures that are mirrored left to right; not where texts say left and right, nor
    where the processor cuts pictures into tiles."""
    min_crop_share: Share = 1.0
    """Pictures are cut to a random share of their area, at least this, and resized; 1 cuts none.
    Not where the processor cuts pictures into tiles."""
    brightness: ShareBelowOne = 0.0
    """Largest change of brightness: 0.2 draws factors of 0.8 to 1.2."""
    contrast: ShareBelowOne = 0.0
    """Largest change of contrast, as of brightness."""
    saturation: ShareBelowOne = 0.0
    """Largest change of saturation, as of brightness."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
        if self.min_crop_share <= 0:
            message = f"min_crop_share is {self.min_crop_share}: give a share above 0, to 1"
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamConfig:
    """Source of samples for `reader: webdataset`."""

    urls: tuple[PathOrAddress, ...] = ()
    """Paths or addresses of shards; `{000..099}` is replaced by each number. Empty: the data set's
    own shards. `dataset` still describes the samples."""
    shuffle_buffer: Count = 1000
    """Number of samples among which the next one is drawn; 1 keeps the order of the shards."""

    def __post_init__(self) -> None:
        """Check bounds."""
        check_bounds(self)
