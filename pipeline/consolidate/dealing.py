"""Dealing of samples to positions and shards, and of shards to array tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.data.disk_format.index import INDEX_ROW, INDEX_TYPES
from pipeline.data.permutation import Permutation, make_permutation
from slurm_jobs.formats.configs.stages import ConsolidateConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Deal:
    """Assignment of all samples to positions, from their number, the seed and the config."""

    order: Permutation
    """Sample at each position, numbered in the order of keys."""
    bounds: np.ndarray
    """int64 [num_shards + 1]: shard s holds positions bounds[s] to bounds[s + 1]."""

    @property
    def num_shards(self) -> int:
        """At least 1; no shard is empty."""
        return len(self.bounds) - 1

    def shard_size(self, shard: int) -> int:
        """Return the number of samples of a shard."""
        return int(self.bounds[shard + 1] - self.bounds[shard])

    def places(self, shards: range) -> range:
        """Return the positions in a run of shards."""
        return range(int(self.bounds[shards.start]), int(self.bounds[shards.stop]))


def make_deal(config: ConsolidateConfig, *, num_samples: int, num_bytes: int) -> Deal:
    """Deal `num_samples` samples, at least one, of `num_bytes` bytes together."""
    num_shards = choose_num_shards(config, num_samples=num_samples, num_bytes=num_bytes)
    return Deal(
        order=make_permutation(num_samples, [config.seed]),
        bounds=shard_bounds(num_samples, num_shards),
    )


def choose_num_shards(config: ConsolidateConfig, *, num_samples: int, num_bytes: int) -> int:
    """Return the number of shards: at least one, and none empty."""
    if config.num_shards is not None:
        wanted = config.num_shards
    elif config.samples_per_shard is not None:
        wanted = -(-num_samples // config.samples_per_shard)
    else:
        wanted = -(-num_bytes // (config.shard_mb * 1_000_000))
    return max(1, min(wanted, num_samples))


def shard_bounds(num_samples: int, num_shards: int) -> np.ndarray:
    """Return int64 [num_shards + 1], see `Deal.bounds`; sizes differ by at most one."""
    return np.arange(num_shards + 1, dtype=np.int64) * num_samples // num_shards


def shards_of_task(num_shards: int, slice_index: int, num_slices: int) -> range:
    """Return the run of shards of one array task; empty if there are more tasks than shards."""
    return range(
        slice_index * num_shards // num_slices, (slice_index + 1) * num_shards // num_slices
    )


def windows(places: range, size: int) -> Iterator[range]:
    """Yield `places` cut into runs of `size`; the last may be shorter."""
    for start in range(places.start, places.stop, size):
        yield range(start, min(start + size, places.stop))


def index_rows(
    samples: np.ndarray, places: range, bounds: np.ndarray, *, num_bytes_before: int
) -> np.ndarray:
    """Return the index rows of the samples at `places`.

    Args:
        samples: [len(places)], from their parts: a structured array with all fields of the
            index but `shard`; its `offset` is replaced.
        places: One run of positions.
        bounds: `Deal.bounds`.
        num_bytes_before: Bytes before the first position in its shard.
    """
    rows = np.empty(len(places), dtype=INDEX_ROW)
    for name in INDEX_TYPES.keys() & set(samples.dtype.names or ()):
        rows[name] = samples[name]
    numbers = np.arange(places.start, places.stop)
    rows["shard"] = np.searchsorted(bounds, numbers, side="right") - 1
    ends = np.cumsum(samples["num_bytes"]) + num_bytes_before
    starts = ends - samples["num_bytes"]
    first_of_shard = bounds[rows["shard"]] - places.start
    # The shard of the first position may have begun before it: then its earlier bytes count.
    rows["offset"] = starts - np.where(first_of_shard < 0, 0, starts[np.maximum(first_of_shard, 0)])
    return rows
