"""Config of the stage `consolidate`: how parts become shards."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import Count, CountOrZero, Share, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidateConfig:
    """Shuffling of the samples of all parts, and their distribution to shards of equal size."""

    seed: CountOrZero = 0
    """Seed of the single permutation over all samples."""

    num_shards: Count | None = None
    """Number of shards; never more than there are samples. By default `shard_mb` decides."""

    samples_per_shard: Count | None = None
    """Most samples in a shard, instead of `num_shards`."""

    shard_mb: Count = 256
    """Target size of a shard, in 10^6 bytes, if neither of the other two is given."""

    max_reject_share: Share | None = None
    """The stage fails if more than this share of the manifest's rows, rounded up to whole rows,
    cannot be used. By default the value of `preprocess`; set it here to check finished parts again.
    """

    max_too_long_share: Share | None = None
    """The same for samples that `preprocess` left out as too long. By default the value of
    `preprocess`."""

    num_read_threads: Count = 16
    """Threads of each array task that read samples ahead. They mostly wait: more of them help on a
    slow shared file system, independent of the number of cores."""

    def __post_init__(self) -> None:
        """Check bounds, and that the number of shards is given once."""
        check_bounds(self)
        if self.num_shards is not None and self.samples_per_shard is not None:
            message = (
                f"num_shards is {self.num_shards} and samples_per_shard is "
                f"{self.samples_per_shard}; give one of the two"
            )
            raise ValueError(message)
