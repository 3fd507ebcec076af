"""The config of the stage `consolidate`: how parts become shards."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import Count, CountOrZero, Share, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidateConfig:
    """How the samples of all parts are shuffled and dealt into shards of equal size."""

    seed: CountOrZero = 0
    """Of the one permutation over all samples."""

    num_shards: Count | None = None
    """How many shards; never more than there are samples. By default as `shard_mb` says."""

    samples_per_shard: Count | None = None
    """Most samples in a shard, instead of `num_shards`."""

    shard_mb: Count = 256
    """Size of a shard to aim at, in 10^6 bytes, where neither of the other two is given."""

    max_reject_share: Share | None = None
    """The stage fails if more than this share of the manifest's rows, rounded up to whole rows,
    cannot be used. By default what `preprocess` was told; set it here to judge finished parts
    anew."""

    max_too_long_share: Share | None = None
    """The same for samples that `preprocess` left out as too long. By default what `preprocess`
    was told."""

    num_read_threads: Count = 16
    """Threads that read samples ahead, of each array task. They wait more than they work: more of
    them help on a shared file system that answers slowly, whatever the number of cores."""

    def __post_init__(self) -> None:
        """Refuse two ways to say how many shards there are."""
        check_bounds(self)
        if self.num_shards is not None and self.samples_per_shard is not None:
            message = (
                f"num_shards is {self.num_shards} and samples_per_shard is "
                f"{self.samples_per_shard}; give one of the two"
            )
            raise ValueError(message)
