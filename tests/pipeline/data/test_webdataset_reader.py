"""Shards streamed through the webdataset library."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.data.augmentation import make_augmentation
from pipeline.data.batch import ModelNeeds
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.disk_format.tar_format import BLOCK, END_OF_ARCHIVE, sample_bytes, scan_members
from pipeline.data.order import BatchLayout
from pipeline.data.shard_reading import shard_files as shards_module
from pipeline.data.webdataset_reader import ShardStream, StreamReader, expand_urls, own_shards
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.training_parts import AugmentConfig
from tests.pipeline.batches import images_of


def shards_of(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted((folder / "shards").glob("*.tar")))


def stream(urls: tuple[str, ...], **changes: Any) -> ShardStream:
    return ShardStream(
        urls=urls,
        seed=3,
        shuffle_buffer=8,
        **{"rank": 0, "num_ranks": 1, "start_step": 0, **changes},
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


def test_samples_that_fill_the_shuffle_buffer_beat_before_the_first_draw(
    dataset_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[int] = []
    monkeypatch.setattr("pipeline.data.webdataset_reader.beat", lambda: beats.append(1))
    next(iter(stream(shards_of(dataset_dir))))
    assert len(beats) == 8


def test_a_sample_with_more_tokens_than_the_model_has_positions_is_named(
    dataset_dir: Path,
) -> None:
    """The index says nothing of streamed shards."""
    layout = BatchLayout(global_batch_size=8, num_lanes=2, num_ranks=1, num_microbatches=2)
    info, samples = read_dataset_info(dataset_dir), stream(shards_of(dataset_dir))
    with (
        StreamReader(info, samples, layout, max_tokens=10) as batches,
        pytest.raises(StageError, match=r"sample \d+: \d+ tokens, .* has 10 positions; preproc"),
    ):
        next(batches)


class Slow:
    """A stream whose every sample comes late; nothing ever sets the event."""

    def __init__(self, samples: ShardStream, *, late_s: float) -> None:
        self._samples, self._late_s, self._never = samples, late_s, threading.Event()

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for sample in self._samples:
            self._never.wait(self._late_s)
            yield sample


def test_batches_tell_what_reading_took_apart_from_decoding(dataset_dir: Path) -> None:
    late_s, num_rows = 0.05, 4
    slow: Any = Slow(stream(shards_of(dataset_dir)), late_s=late_s)
    layout = BatchLayout(global_batch_size=num_rows, num_lanes=2, num_ranks=1, num_microbatches=1)
    with StreamReader(read_dataset_info(dataset_dir), slow, layout) as steps:
        ((batch,),) = itertools.islice(steps, 1)
    assert batch.reading.wall_s >= num_rows * late_s
    assert batch.reading.cpu_s < batch.reading.wall_s - num_rows * late_s + 0.01
    assert batch.loading.wall_s > batch.reading.wall_s


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
            assert (images_of(batch)[row].numpy() == expected.images[0]).all()


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


def test_own_shard_that_is_cut_short_between_two_samples_is_refused(
    dataset_dir: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(dataset_dir, tmp_path / "cut")
    index = open_dataset(folder).index
    os.truncate(shards_of(folder)[0], int(index.offset[(index.shard == 0).nonzero()[0][3]]))
    names, locate = own_shards(open_dataset(folder))
    with pytest.raises(StageError, match=r"shard-000000\.tar: \d+ bytes, expected"):
        next(iter(stream(names, locate=locate)))


def test_own_shards_are_read_locally_from_the_pass_after_they_arrive(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "_LOOK_AGAIN_S", 0.0)
    local = tmp_path / "local"
    names, locate = own_shards(open_dataset(dataset_dir, local))
    shards = stream(names, locate=locate)
    assert sorted(shards.shards_of_pass(0)) == list(shards_of(dataset_dir))
    shutil.copytree(dataset_dir, local)
    assert sorted(shards.shards_of_pass(1)) == list(shards_of(local))


def tokens_npy(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ones(shape, "<i4"), version=(1, 0))
    return stream.getvalue()


def grey_png(size: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (size, size)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"meta.json": b"{}"}, "no member tokens.npy"),
        ({"tokens.npy": tokens_npy((2, 4))}, "no member meta.json"),
        ({"tokens.npy": tokens_npy((3,)), "meta.json": b"{}"}, r"the shape \(3,\)"),
        ({"tokens.npy": tokens_npy((2, 0)), "meta.json": b"{}"}, r"the shape \(2, 0\)"),
        ({"tokens.npy": b"\x93NUMPY\x01\x00\x02\x00{(", "meta.json": b"{}"}, "damaged"),
        ({"tokens.npy": tokens_npy((2, 4)), "meta.json": b"{"}, "delimiter|property name"),
        ({"tokens.npy": tokens_npy((2, 4)), "meta.json": b"{}", "image.png": b""}, "int()"),
        (
            {"tokens.npy": tokens_npy((2, 4)), "meta.json": b"{}", "image0.png": grey_png(8)},
            r"image \(8, 8\), expected",
        ),
    ],
)
def test_samples_of_others_that_cannot_be_learned_are_named(
    dataset_dir: Path, tmp_path: Path, members: dict[str, bytes], reason: str
) -> None:
    shard = tmp_path / "theirs.tar"
    shard.write_bytes(sample_bytes("dir/köy", members.items()) + END_OF_ARCHIVE)
    with (
        reader(dataset_dir, (str(shard),)) as steps,
        pytest.raises(StageError, match=rf"theirs\.tar: sample dir/köy: .*{reason}"),
    ):
        next(steps)


def test_samples_without_the_sizes_that_the_model_needs_are_named(
    dataset_dir: Path, tmp_path: Path
) -> None:
    shard = tmp_path / "theirs.tar"
    members = {"tokens.npy": tokens_npy((2, 4)), "meta.json": b"{}"}
    shard.write_bytes(sample_bytes("a", members.items()) + END_OF_ARCHIVE)
    info = read_dataset_info(dataset_dir)
    layout = BatchLayout(global_batch_size=2, num_lanes=1, num_ranks=1, num_microbatches=1)
    tiled = dataclasses.replace(info, num_image_tokens=None, patch_size=None, merge_size=None)
    needs = ModelNeeds(pictures=True)
    for made_for, wanted, reason in (
        (tiled, ModelNeeds(), "sample a: meta.json is not what .*no 'stored_sizes'"),
        (info, needs, "sample a has no sizes of its original image files"),
    ):
        with (
            StreamReader(made_for, stream((str(shard),)), layout, needs=wanted) as steps,
            pytest.raises(StageError, match=rf"theirs\.tar: {reason}"),
        ):
            next(steps)


def test_sample_that_lost_its_images_is_named(dataset_dir: Path, tmp_path: Path) -> None:
    data = memoryview(Path(shards_of(dataset_dir)[0]).read_bytes())
    image = next(member for member in scan_members(data) if ".image0." in member.name)
    shard = tmp_path / "cut.tar"
    shard.write_bytes(data[: image.start - BLOCK])  # which tar takes for the end of an archive
    with (
        reader(dataset_dir, (str(shard),)) as steps,
        pytest.raises(StageError, match="0 images and 4 image tokens, expected 0"),
    ):
        next(steps)


def test_pictures_of_samples_with_any_key_can_be_changed(dataset_dir: Path, tmp_path: Path) -> None:
    dataset, shard = open_dataset(dataset_dir), tmp_path / "theirs.tar"
    data = dataset.raw(0)
    members = [
        (member.name.partition(".")[2], bytes(data[member.start :][: member.num_bytes]))
        for member in scan_members(data)
    ]
    shard.write_bytes(sample_bytes("dir/²köy", members) + END_OF_ARCHIVE)
    change = make_augmentation(AugmentConfig(brightness=0.9), seed=0)
    layout = BatchLayout(global_batch_size=2, num_lanes=1, num_ranks=1, num_microbatches=1)
    with StreamReader(dataset.info, stream((str(shard),)), layout, augment=change) as steps:
        first, second = images_of(next(steps)[0])  # of two passes
    assert (first != second).any()


@pytest.mark.parametrize(
    "url",
    [
        "pipe:cat x.tar",
        "https://host/a'; rm -rf x;.tar",
        "a.tar::pipe:cat x.tar",
        "{a.tar,pipe:cat x.tar}",
        "",
    ],
)
def test_urls_run_no_command(url: str) -> None:
    with pytest.raises(StageConfigError, match="refused"):
        expand_urls([url])


def test_braces_that_nothing_closes_are_refused() -> None:
    with pytest.raises(StageConfigError, match=r"shards/\{000\.\.099\.tar.*Unbalanced"):
        expand_urls(["shards/{000..099.tar"])


def test_numbers_in_braces_are_written_out() -> None:
    assert expand_urls(["https://host/s-{000..002}.tar"]) == tuple(
        f"https://host/s-{number:03d}.tar" for number in range(3)
    )
