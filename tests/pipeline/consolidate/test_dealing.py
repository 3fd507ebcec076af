"""Pure rules of places, shards and tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.consolidate.dealing import (
    choose_num_shards,
    index_rows,
    make_deal,
    shard_bounds,
    shards_of_task,
    windows,
)
from pipeline.preprocess.part import SAMPLE_ROW
from slurm_jobs.formats.configs.stages import ConsolidateConfig


@given(st.integers(1, 500), st.integers(1, 50))
def test_bounds_cover_all_samples_in_sizes_within_one(num_samples: int, num_shards: int) -> None:
    sizes = np.diff(shard_bounds(num_samples, num_shards))
    assert sizes.sum() == num_samples
    assert sizes.max() - sizes.min() <= 1


def test_no_shard_is_empty_when_more_are_requested_than_samples() -> None:
    config = ConsolidateConfig(num_shards=64)
    assert choose_num_shards(config, num_samples=5, num_bytes=10) == 5


def test_samples_per_shard_is_a_maximum() -> None:
    config = ConsolidateConfig(samples_per_shard=10)
    assert choose_num_shards(config, num_samples=21, num_bytes=10) == 3


def test_shards_are_about_256_megabytes_by_default() -> None:
    num_bytes = 1_000_000_000
    assert choose_num_shards(ConsolidateConfig(), num_samples=9999, num_bytes=num_bytes) == 4


def test_deal_depends_on_the_seed_alone() -> None:
    def order(seed: int) -> list[int]:
        deal = make_deal(ConsolidateConfig(seed=seed), num_samples=100, num_bytes=10)
        return deal.order.slice(0, 100).tolist()

    assert order(3) == order(3)
    assert order(3) != order(4)
    assert sorted(order(3)) == list(range(100))


@given(st.integers(1, 40), st.integers(1, 60))
def test_tasks_take_each_shard_once_and_in_order(num_shards: int, num_slices: int) -> None:
    taken = [s for t in range(num_slices) for s in shards_of_task(num_shards, t, num_slices)]
    assert taken == list(range(num_shards))


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 50), st.data())
def test_index_rows_do_not_depend_on_windows(
    num_samples: int, num_shards: int, size: int, data: st.DataObject
) -> None:
    bounds = shard_bounds(num_samples, min(num_shards, num_samples))
    samples = np.zeros(num_samples, dtype=SAMPLE_ROW)
    samples["num_bytes"] = data.draw(
        st.lists(st.integers(1, 9), min_size=num_samples, max_size=num_samples)
    )
    samples["key"] = np.arange(num_samples)
    expected, offset, shard = [], 0, 0
    for place in range(num_samples):
        if place == bounds[shard + 1]:
            shard, offset = shard + 1, 0
        expected.append((place, shard, offset))
        offset += int(samples["num_bytes"][place])
    found, before = [], 0
    for window in windows(range(num_samples), size):
        rows = index_rows(
            samples[window.start : window.stop], window, bounds, num_bytes_before=before
        )
        found += [(int(r["key"]), int(r["shard"]), int(r["offset"])) for r in rows]
        before = int(rows["offset"][-1] + rows["num_bytes"][-1])
        before = 0 if window.stop in bounds else before
    assert found == expected


def test_both_shard_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        ConsolidateConfig(num_shards=2, samples_per_shard=3)
