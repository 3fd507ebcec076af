"""Shards as webdataset reads them, and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info


@pytest.mark.parametrize(
    ("image_format", "suffix"),
    [("png", "png"), ("webp_lossless", "webp"), ("webp", "webp"), ("jpeg", "jpg"), ("raw", "npy")],
)
def test_webdataset_reads_the_shards_as_they_are(
    make_dataset: Callable[..., Path], image_format: str, suffix: str
) -> None:
    import webdataset

    folder = make_dataset(5, num_shards=2, image_format=image_format)
    urls = [str(path) for path in sorted((folder / "shards").glob("*.tar"))]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8"))
    assert len(samples) == 5
    for number, theirs in enumerate(samples):
        sample = open_dataset(folder).sample(number)
        assert theirs["__key__"] == sample.key
        assert np.array_equal(theirs["tokens.npy"], [sample.input_ids, sample.labels])
        assert np.array_equal(theirs[f"image0.{suffix}"], sample.images[0])
        assert theirs["meta.json"] == sample.meta


def test_shard_sizes_differ_by_at_most_one_and_hold_every_sample_once(dataset_dir: Path) -> None:
    info, index = read_dataset_info(dataset_dir), open_dataset(dataset_dir).index
    assert [shard.num_samples for shard in info.shards] == [7, 8, 8]
    assert sorted(index.key) == list(range(23))
    assert list(index.key) != sorted(index.key)
