"""Pure rules of shard sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.consolidate.deal import choose_num_shards, shard_bounds, shuffle
from slurm_jobs.common.stage_config.consolidate import ConsolidateConfig


@given(st.integers(1, 500), st.integers(1, 50))
def test_bounds_cover_all_samples_in_sizes_within_one(num_samples: int, num_shards: int) -> None:
    sizes = np.diff(shard_bounds(num_samples, num_shards))
    assert sizes.sum() == num_samples
    assert sizes.max() - sizes.min() <= 1


def test_no_shard_is_empty_when_more_are_asked_for_than_samples() -> None:
    config = ConsolidateConfig(num_shards=64)
    assert choose_num_shards(config, num_samples=5, num_bytes=10) == 5


def test_samples_per_shard_is_a_maximum() -> None:
    config = ConsolidateConfig(samples_per_shard=10)
    assert choose_num_shards(config, num_samples=21, num_bytes=10) == 3


def test_shards_are_about_256_megabytes_by_default() -> None:
    num_bytes = 1_000_000_000
    assert choose_num_shards(ConsolidateConfig(), num_samples=9999, num_bytes=num_bytes) == 4


def test_shuffle_depends_on_the_seed_alone() -> None:
    assert np.array_equal(shuffle(100, 3), shuffle(100, 3))
    assert not np.array_equal(shuffle(100, 3), shuffle(100, 4))


def test_both_shard_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        ConsolidateConfig(num_shards=2, samples_per_shard=3)
