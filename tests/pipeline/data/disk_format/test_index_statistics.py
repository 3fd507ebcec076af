"""Statistics over an index, against NumPy on the same numbers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.index_statistics import (
    MAX_BINS,
    PERCENTILES,
    bins,
    index_statistics,
    summary,
)
from tests.pipeline.build import preprocess_23, run_consolidate
from tests.pipeline.tools.build import write_kind_set

GENERATOR = np.random.default_rng(3)
LENGTHS = {
    "one": np.array([24]),
    "equal": np.full(50, 24),
    "captions": GENERATOR.integers(10, 80, 5000),
    "long tail": (GENERATOR.pareto(1.2, 5000) * 50).astype(int).clip(1, 60_000),
    "zeros": np.array([0, 0, 0, 5]),
}


@pytest.mark.parametrize("values", LENGTHS.values(), ids=LENGTHS)
def test_summary_is_that_of_the_values(values: np.ndarray) -> None:
    found = summary(np.bincount(values))
    assert found is not None
    assert found["mean"] == pytest.approx(values.mean())
    assert (found["min"], found["max"]) == (values.min(), values.max())
    for p in PERCENTILES:
        assert found[f"p{p}"] == np.percentile(values, p, method="inverted_cdf")


@pytest.mark.parametrize("values", LENGTHS.values(), ids=LENGTHS)
def test_bins_have_every_sample_once_and_are_few(values: np.ndarray) -> None:
    made = bins(np.bincount(values))
    assert len(made) <= MAX_BINS + 1
    assert sum(num for *_, num in made) == len(values)
    assert (made[0][0], made[-1][1]) == (values.min(), values.max())
    for first, last, num in made:
        assert num == np.count_nonzero((values >= first) & (values <= last))
    assert all(a[1] + 1 == b[0] for a, b in pairwise(made))


def test_nothing_has_no_summary() -> None:
    assert summary(np.zeros(1, dtype=np.int64)) is None
    assert bins(np.zeros(1, dtype=np.int64)) == []


def test_blocks_decide_nothing(dataset_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(dataset_dir)
    expected = index_statistics(dataset.index, dataset.info)
    monkeypatch.setattr("pipeline.data.disk_format.index_statistics._BLOCK_ROWS", 5)
    assert index_statistics(dataset.index, dataset.info) == expected
    assert expected["num_samples"] == 23
    assert expected["image_size"] == [32, 32]
    assert expected["num_images_bins"] == [[1, 1, 23]]
    tokens, supervised = dataset.index.num_tokens, dataset.index.num_supervised_tokens
    assert expected["num_tokens"]["mean"] == pytest.approx(tokens.mean())
    assert expected["supervised_share"] == pytest.approx(supervised.sum() / tokens.sum())


def test_the_task_that_finishes_the_data_set_returns_them(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts = preprocess_23(tmp_path, processor_dir)
    tasks = [
        run_consolidate(tmp_path / "set", parts, 2, task=(number, 3), num_shards=4)
        for number in range(3)
    ]
    assert [("statistics" in result) for result, _ in tasks] == [False, False, True]
    dataset = open_dataset(tasks[-1][1])
    assert tasks[-1][0]["statistics"] == index_statistics(dataset.index, dataset.info)


def test_images_of_their_own_sizes_have_pixels_and_no_size(tmp_path: Path) -> None:
    dataset = open_dataset(write_kind_set("qwen2_vl", tmp_path))
    found = index_statistics(dataset.index, dataset.info)
    assert found["image_size"] is None
    assert found["num_images"]["max"] == 3
    assert found["num_pixels"]["max"] == 112 * 56  # of row 1, the mean of the others is less
    assert found["num_pixels"]["min"] % 28**2 == 0


def test_a_set_of_text_alone_has_no_pixels(tmp_path: Path) -> None:
    from dataclasses import replace

    dataset = open_dataset(write_kind_set("qwen2_vl", tmp_path))
    none = np.zeros(len(dataset), dtype=np.int32)
    index = replace(dataset.index, num_images=none)
    index._checked.add("num_images")
    assert index_statistics(index, dataset.info)["num_pixels"] is None
