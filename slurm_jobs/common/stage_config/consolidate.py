"""The config of the stage `consolidate`: how parts become shards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidateConfig:
    """How the samples of all parts are shuffled and dealt into shards of equal size."""

    seed: int = 0
    """Of the one permutation over all samples."""

    num_shards: int | None = None
    """How many shards; never more than there are samples. By default as `shard_mb` says."""

    samples_per_shard: int | None = None
    """Most samples in a shard, instead of `num_shards`."""

    shard_mb: int = 256
    """Size of a shard to aim at, in 10^6 bytes, where neither of the other two is given."""

    def __post_init__(self) -> None:
        for name in ("num_shards", "samples_per_shard", "shard_mb"):
            value = getattr(self, name)
            if value is not None and value < 1:
                message = f"{name} is {value}; allowed is 1 or more"
                raise ValueError(message)
        if self.seed < 0:
            message = f"seed is {self.seed}; allowed is 0 or more"
            raise ValueError(message)
        if self.num_shards is not None and self.samples_per_shard is not None:
            message = (
                f"num_shards is {self.num_shards} and samples_per_shard is "
                f"{self.samples_per_shard}; give one of the two"
            )
            raise ValueError(message)
