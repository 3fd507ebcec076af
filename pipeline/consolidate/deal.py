"""Pure rules: which sample goes to which place in which shard."""

from __future__ import annotations

import numpy as np

from slurm_jobs.common.stage_config.consolidate import ConsolidateConfig


def choose_num_shards(config: ConsolidateConfig, *, num_samples: int, num_bytes: int) -> int:
    """How many shards; at least one, and none empty."""
    if config.num_shards is not None:
        wanted = config.num_shards
    elif config.samples_per_shard is not None:
        wanted = -(-num_samples // config.samples_per_shard)
    else:
        wanted = -(-num_bytes // (config.shard_mb * 1_000_000))
    return max(1, min(wanted, num_samples))


def shard_bounds(num_samples: int, num_shards: int) -> np.ndarray:
    """int64 [num_shards + 1]: shard s holds places bounds[s] to bounds[s + 1], sizes within one."""
    return np.arange(num_shards + 1, dtype=np.int64) * num_samples // num_shards


def shuffle(num_samples: int, seed: int) -> np.ndarray:
    """int64 [num_samples]: which sample, counted in the order of keys, comes at each place.

    PCG64 seeded through NumPy's SeedSequence, and `Generator.permutation`.
    """
    return np.random.Generator(np.random.PCG64(seed)).permutation(num_samples)
