"""Shards streamed through the webdataset library."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.info import read_dataset_info
from pipeline.data.order import BatchLayout
from pipeline.data.stream import ShardStream, StreamReader, expand_urls
from slurm_jobs.common.errors import StageConfigError, StageError


def shards_of(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted((folder / "shards").glob("*.tar")))


def stream(
    urls: tuple[str, ...], *, rank: int = 0, num_ranks: int = 1, start_step: int = 0
) -> ShardStream:
    return ShardStream(
        urls=urls,
        seed=3,
        rank=rank,
        num_ranks=num_ranks,
        shuffle_buffer=8,
        start_step=start_step,
    )


def reader(folder: Path, urls: tuple[str, ...], **changes: int) -> StreamReader:
    layout = BatchLayout(
        global_batch_size=8,
        num_lanes=2,
        num_ranks=changes.get("num_ranks", 1),
        num_microbatches=2,
    )
    return StreamReader(read_dataset_info(folder), stream(urls, **changes), layout)


def test_each_pass_of_a_rank_has_each_of_its_samples_once(dataset_dir: Path) -> None:
    urls = shards_of(dataset_dir)
    assert len(urls) >= 2
    for num_ranks in (1, 2):
        seen: Counter[str] = Counter()
        for rank in range(num_ranks):
            passes = iter(stream(urls, rank=rank, num_ranks=num_ranks))
            one_pass = itertools.takewhile(lambda item: item[0] == 0, passes)
            seen.update(members["__key__"] for _, members in one_pass)
        assert sorted(seen) == [f"{number:09d}" for number in range(23)]
        assert set(seen.values()) == {1}


def test_batches_hold_what_the_index_reads(dataset_dir: Path) -> None:
    dataset = open_dataset(dataset_dir)
    by_key = {dataset.sample(n).key: dataset.sample(n) for n in range(len(dataset))}
    with reader(dataset_dir, shards_of(dataset_dir)) as steps:
        batches = [batch for step in itertools.islice(steps, 7) for batch in step]
    assert [batch.num_samples for batch in batches] == [4] * 14
    assert {batch.epoch for batch in batches} == {0, 1, 2}
    for batch in batches:
        for row, key in enumerate(batch.keys):
            expected = by_key[key]
            num_tokens = len(expected.input_ids)
            assert batch.input_ids[row, :num_tokens].tolist() == expected.input_ids.tolist()
            assert (batch.images[row].numpy() == expected.images[0]).all()


def test_the_stream_is_the_same_again_and_another_after_a_resume(dataset_dir: Path) -> None:
    def keys(start_step: int) -> list[str]:
        samples = iter(stream(shards_of(dataset_dir), start_step=start_step))
        return [members["__key__"] for _, members in itertools.islice(samples, 30)]

    assert keys(0) == keys(0)
    assert keys(5) != keys(0)


def test_more_ranks_than_shards_are_refused(dataset_dir: Path) -> None:
    urls = shards_of(dataset_dir)
    with pytest.raises(StageConfigError, match="shards are too few for 9 ranks"):
        stream(urls, num_ranks=9)


def test_truncated_shard_is_an_error_of_its_step(dataset_dir: Path, tmp_path: Path) -> None:
    broken = tmp_path / "shard-000000.tar"
    broken.write_bytes(Path(shards_of(dataset_dir)[0]).read_bytes()[:5000])
    with (
        reader(dataset_dir, (str(broken),)) as steps,
        pytest.raises(StageError, match="shard"),
    ):
        list(itertools.islice(steps, 3))


@pytest.mark.parametrize("url", ["pipe:cat x.tar", "https://host/a'; rm -rf x;.tar"])
def test_urls_run_no_command(url: str) -> None:
    with pytest.raises(StageConfigError, match="refused"):
        expand_urls([url])


def test_numbers_in_braces_are_written_out() -> None:
    assert expand_urls(["https://host/s-{000..002}.tar"]) == tuple(
        f"https://host/s-{number:03d}.tar" for number in range(3)
    )
