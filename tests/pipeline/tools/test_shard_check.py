"""What is found in shards that were broken on purpose."""

from __future__ import annotations

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.disk_format.index import format_key
from pipeline.tools import shard_check
from tests.pipeline.tools.verifying import flip, problems_of


@pytest.mark.parametrize("number", [0, 11, 22])
def test_a_flipped_bit_is_reported_with_shard_and_key(folder, number):
    dataset = open_dataset(folder)
    shard, key = int(dataset.index.shard[number]), format_key(int(dataset.index.key[number]))
    name = f"shards/shard-{shard:06d}.tar"
    flip(folder / name, int(dataset.index.offset[number] + dataset.index.num_bytes[number]) - 600)
    found = problems_of(folder)
    assert [(file, of) for file, of, _ in found] == [(name, None), (name, key)]
    assert found[0][2].startswith("xxh3 ")
    assert found[1][2] == "its bytes do not match their checksum"


def test_a_flipped_bit_after_the_last_sample_is_reported(folder):
    flip(folder / "shards" / "shard-000001.tar", -3)
    ((file, key, message),) = problems_of(folder)
    assert (file, key) == ("shards/shard-000001.tar", None)
    assert message.startswith("xxh3 ")


def test_a_truncated_shard_is_reported_with_the_lost_samples(folder):
    index = open_dataset(folder).index
    path = folder / "shards" / "shard-000001.tar"
    in_shard = [number for number in range(23) if index.shard[number] == 1]
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(int(index.offset[in_shard[-2]]) + 10)
    found = problems_of(folder)
    assert found[0][2] == f"{int(index.offset[in_shard[-2]]) + 10} bytes, expected {size}"
    lost = [format_key(int(index.key[number])) for number in in_shard[-2:]]
    assert [key for _, key, _ in found[1:]] == lost
    assert all(message.startswith("cut short") for _, _, message in found[1:])


def test_problems_of_a_shard_above_a_limit_are_reported_as_a_number(folder, monkeypatch):
    """A set of which nothing is left must not fill the memory with what is missing of it."""
    monkeypatch.setattr(shard_check, "MOST_OF_A_SHARD", 2)
    (folder / "shards" / "shard-000001.tar").write_bytes(b"")
    keys = [key for _, key, _ in problems_of(folder)]
    assert [key is None for key in keys] == [True, False, False, True]
    words = f"{read_dataset_info(folder).shards[1].num_samples - 2} more of its samples"
    assert problems_of(folder)[-1][2].startswith(words)


def test_swapped_shards_are_reported_for_each_sample(folder):
    first, second = (folder / "shards" / f"shard-00000{i}.tar" for i in (1, 2))
    other = folder / "other"
    first.rename(other)
    second.rename(first)
    other.rename(second)
    keys = [key for _, key, _ in problems_of(folder) if key is not None]
    index = open_dataset(folder).index
    assert keys == [format_key(int(k)) for k, s in zip(index.key, index.shard, strict=True) if s]
