"""Batches of real data sets, read by background threads."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.data.augmentation import Augmentation
from pipeline.data.batches import buffer_pool
from pipeline.data.dataset import open_dataset
from pipeline.data.gathered import ImageRule
from pipeline.data.loader import BatchReader
from pipeline.data.order import BatchLayout
from pipeline.data.reading_plan import plan_shuffled
from pipeline.data.shard_reading import shard_files as shards
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.configs.training_parts import AugmentConfig

ONE = BatchLayout(global_batch_size=4, num_lanes=1, num_ranks=1, num_microbatches=1)


def reader(
    folder: Path,
    *,
    global_batch_size: int = 8,
    num_ranks: int = 1,
    num_microbatches: int = 1,
    **changes: Any,
) -> BatchReader:
    opened = open_dataset(folder)
    layout = BatchLayout(
        global_batch_size=global_batch_size,
        num_lanes=4,
        num_ranks=num_ranks,
        num_microbatches=num_microbatches,
    )
    plan = plan_shuffled(len(opened), seed=5, layout=layout)
    return BatchReader(opened, plan, **{"rank": 0, "num_threads": 2, "prefetch": 3, **changes})


def keys_of(folder: Path, num_steps: int, **changes: Any) -> list[tuple[str, ...]]:
    with reader(folder, **changes) as steps:
        return [
            tuple(key for batch in batches for key in batch.keys)
            for batches in itertools.islice(steps, num_steps)
        ]


def test_one_epoch_reads_every_sample_once(dataset_dir: Path) -> None:
    keys = keys_of(dataset_dir, 23)  # 23 samples, batches of 8: 8 epochs in 23 steps
    flat = [key for step in keys for key in step]
    for epoch in range(8):
        assert len(set(flat[epoch * 23 : (epoch + 1) * 23])) == 23


def test_ranks_together_read_what_one_rank_reads(dataset_dir: Path) -> None:
    alone = keys_of(dataset_dir, 5)
    for num_ranks in (2, 4):
        ranks = [keys_of(dataset_dir, 5, rank=r, num_ranks=num_ranks) for r in range(num_ranks)]
        joined = [sum(step, ()) for step in zip(*ranks, strict=True)]
        assert joined == alone


@pytest.mark.parametrize("step", [1, 2, 7])
def test_resume_from_any_step_is_bit_equal(dataset_dir: Path, step: int) -> None:
    with reader(dataset_dir, num_microbatches=2) as steps:
        through = list(itertools.islice(steps, step + 2))[step:]
    with reader(dataset_dir, num_microbatches=2, start_step=step) as steps:
        resumed = list(itertools.islice(steps, 2))
    for expected, found in zip(through, resumed, strict=True):
        for left, right in zip(expected, found, strict=True):
            assert left.keys == right.keys
            assert torch.equal(left.input_ids, right.input_ids)
            assert torch.equal(left.pixels, right.pixels)


def test_batch_has_the_stated_shapes_and_counts(dataset_dir: Path) -> None:
    pad_token_id = open_dataset(dataset_dir).info.pad_token_id
    with reader(dataset_dir, num_microbatches=2) as steps:
        batches = next(steps)
    assert len(batches) == 2
    for batch in batches:
        length = batch.input_ids.shape[1]
        assert batch.input_ids.dtype == batch.labels.dtype == torch.int64
        assert batch.pixels.shape == (4 * 32 * 32, 3)
        assert batch.pixels.dtype == torch.uint8
        assert batch.image_sizes.tolist() == [[32, 32]] * 4
        learned = torch.nonzero(batch.labels.flatten() != -100).flatten()
        assert batch.learned.places.tolist() == (learned - 1).tolist()
        assert batch.learned.targets.tolist() == batch.labels.flatten()[learned].tolist()
        is_padding = batch.input_ids == pad_token_id
        assert batch.num_padding_tokens == int(is_padding.sum()) > 0
        assert batch.num_tokens + batch.num_padding_tokens == 4 * length
        assert batch.num_supervised_tokens == int((batch.labels != -100).sum())
        assert bool((batch.labels[is_padding] == -100).all())
        assert (batch.num_samples, batch.num_images, batch.epoch) == (4, 4, 0)


def test_raw_and_png_images_are_the_same_pixels(make_dataset: Callable[..., Path]) -> None:
    batches = []
    for image_format in ("png", "raw"):
        with reader(make_dataset(8, image_format=image_format)) as steps:
            batches.append(next(steps)[0])
    assert torch.equal(batches[0].pixels, batches[1].pixels)


def test_threads_read_the_same_samples_with_few_shards_mapped(
    dataset_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = keys_of(dataset_dir, 12)
    monkeypatch.setattr(shards, "max_opened", lambda: 1)
    assert keys_of(dataset_dir, 12, num_threads=4, num_microbatches=2) == expected


def test_damaged_sample_is_named_with_its_shard(dataset_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(dataset_dir, folder)
    for shard in (folder / "shards").iterdir():
        data = bytearray(shard.read_bytes())
        data[700] ^= 1
        shard.write_bytes(data)
    with (
        reader(folder, global_batch_size=24) as steps,
        pytest.raises(StageError, match=r"shard-00000\d\.tar: sample \d{9}: .*checksum"),
    ):
        next(steps)


@pytest.mark.parametrize("augment", [None, Augmentation(config=AugmentConfig(), seed=0)])
def test_image_of_another_size_than_the_data_set_says_is_named(
    dataset_dir: Path, augment: Augmentation | None
) -> None:
    dataset = open_dataset(dataset_dir)
    dataset = dataclasses.replace(dataset, rule=ImageRule(size=(7, 32)))
    plan = plan_shuffled(23, seed=0, layout=ONE)
    with (
        BatchReader(dataset, plan, rank=0, augment=augment) as steps,
        pytest.raises(StageError, match=r"shards.*sample \d{9}: image .* expected \(7, "),
    ):
        next(steps)


def test_truncated_shard_is_detected(dataset_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(dataset_dir, folder)
    for shard in (folder / "shards").iterdir():
        shard.write_bytes(shard.read_bytes()[:-2048])
    with reader(folder) as steps, pytest.raises(StageError, match=r"bytes, expected \d+"):
        next(steps)


def test_close_ends_the_threads(dataset_dir: Path) -> None:
    steps = reader(dataset_dir)
    next(steps)
    steps.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batch")]
    assert list(steps) == []


def test_threads_use_the_gpu_that_they_pin_memory_for(
    dataset_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no GPU here: torch's part is made up."""
    uses: list[tuple[str, str]] = []

    def note(what: str) -> None:
        uses.append((threading.current_thread().name, what))

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        note("pin")
        return tensor

    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: note(str(gpu)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(buffer_pool._pin_memory_utils, "pin_memory", lambda *_: note("pin"))
    monkeypatch.setattr(buffer_pool._pin_memory_utils, "unpin_memory", lambda _: None)
    with reader(dataset_dir, gpu=torch.device("cuda", 3)) as steps:
        next(steps)
    threads = {thread for thread, _ in uses}
    assert "MainThread" not in threads
    for thread in threads:
        what = [use for name, use in uses if name == thread]
        assert what[0] == "cuda:3"
        assert set(what[1:]) <= {"pin"}
    assert "pin" in {use for _, use in uses}


def test_without_a_gpu_nothing_is_pinned(
    dataset_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", None)  # a call fails
    monkeypatch.setattr(buffer_pool._pin_memory_utils, "pin_memory", None)
    with reader(dataset_dir) as steps:
        assert next(steps)
