"""Where samples are read, and what becomes of damage on either file system."""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.shard_reading import opened_shards
from pipeline.data.shard_reading import shard_files as shards
from slurm_jobs.base.errors import StageError
from tests.pipeline.data.shard_reading.conftest import keys_of


@pytest.fixture
def local(dataset_dir: Path, tmp_path: Path) -> Path:
    return shutil.copytree(dataset_dir, tmp_path / "local")


def num_bytes_of(dataset: ShardedDataset, shard: int) -> int:
    return int(dataset.index.num_bytes[dataset.index.shard == shard].sum())


def flip_bit(folder: Path, shard: int, place: int = 700) -> Path:
    """Another file under the same name, as what is mapped by others must not change."""
    path = folder / "shards" / f"shard-{shard:06d}.tar"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.unlink()
    path.write_bytes(data)
    return path


def test_whole_local_copy_is_all_that_is_read(shared: Path, local: Path, dataset_dir: Path) -> None:
    shutil.rmtree(shared / "shards")
    dataset = open_dataset(shared, local)
    assert keys_of(dataset) == keys_of(open_dataset(dataset_dir))
    counts = dataset.files.counts
    assert counts.local_bytes == int(dataset.index.num_bytes.sum())
    assert counts.local_s > 0
    assert (counts.shared_bytes, counts.shared_s, counts.num_damaged_shards) == (0, 0, 0)


def test_a_step_whose_samples_come_slowly_beats_with_each(
    dataset_dir: Path, last_beat: Callable[[], dict[str, Any]]
) -> None:
    dataset = open_dataset(dataset_dir)
    for number in range(3):
        before = last_beat()["beats"]
        time.sleep(0.06)  # a beat is written at most every 0.05 s
        dataset.gather([number])
        assert last_beat()["beats"] > before


@pytest.mark.usefixtures("_network")
def test_shard_is_read_from_its_local_copy_as_soon_as_it_is_whole(
    shared: Path, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LOOK_AGAIN_S", 0.0)
    path = local / "shards/shard-000001.tar"
    path.rename(local / "later")
    dataset = open_dataset(shared, local)
    expected, of_shard = keys_of(dataset), num_bytes_of(dataset, 1)
    assert dataset.files.counts.shared_bytes == of_shard
    (local / "later").rename(path)
    assert keys_of(dataset) == expected
    assert dataset.files.counts.shared_bytes == of_shard


def test_the_path_of_a_shard_is_where_it_is_whole(shared: Path, local: Path) -> None:
    os.truncate(local / "shards/shard-000001.tar", 512)
    files = open_dataset(shared, local).files
    assert [files.path(number).parents[1] for number in range(3)] == [local, shared, local]


def test_the_path_of_a_shard_that_is_whole_nowhere_is_an_error(shared: Path) -> None:
    os.truncate(shared / "shards/shard-000001.tar", 512)
    (shared / "shards/shard-000002.tar").unlink()
    files = open_dataset(shared).files
    for number, reason in ((1, "512 bytes, expected"), (2, "cannot be read")):
        with pytest.raises(StageError, match=rf"shard-00000{number}\.tar: .*{reason}"):
            files.path(number)


def test_missing_shard_is_not_looked_for_at_every_sample(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    really = opened_shards.MappedShard.__init__

    def note(self, path: Path, expected) -> None:
        looks.append(path)
        really(self, path, expected)

    monkeypatch.setattr(opened_shards.MappedShard, "__init__", note)
    monkeypatch.setattr(shards, "_LOOK_AGAIN_S", 3600.0)
    keys_of(open_dataset(shared, tmp_path / "nowhere"))
    assert len([path for path in looks if "nowhere" in str(path)]) == 3


@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "empty", "a folder"])
def test_damaged_local_shard_is_reported_and_read_from_the_shared_folder(
    shared: Path, local: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = local / "shards/shard-000001.tar"
    if damage == "flipped bit":
        flip_bit(local, 1)
    else:
        data = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        else:
            path.write_bytes(data[:-1] if damage == "cut short" else b"")
    dataset = open_dataset(shared, local)
    assert keys_of(dataset) == keys_of(open_dataset(shared)) == keys_of(dataset)
    assert caplog.text.count(str(path)) == 1
    assert str(shared) in caplog.text
    counts = dataset.files.counts
    if damage == "flipped bit":
        assert not path.exists()  # so that the next staging makes it anew
        assert counts.num_damaged_shards == 1
    else:
        assert counts.shared_bytes == 2 * num_bytes_of(dataset, 1)


def test_damaged_copy_that_arrives_after_the_first_epoch_is_not_read(
    shared: Path, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LOOK_AGAIN_S", 0.0)
    path = local / "shards/shard-000001.tar"
    path.rename(local / "later")
    dataset = open_dataset(shared, local)
    expected = [bytes(dataset.raw(number)) for number in range(len(dataset))]
    (local / "later").rename(path)
    flip_bit(local, 1)
    assert [bytes(dataset.raw(number)) for number in range(len(dataset))] == expected
    assert dataset.files.counts.num_damaged_shards == 1


def test_shared_shard_is_compared_though_its_local_copy_was(shared: Path, local: Path) -> None:
    dataset = open_dataset(shared, local)
    of_shard = (dataset.index.shard == 1).nonzero()[0].tolist()
    flip_bit(local, 1)  # in the first sample
    flip_bit(shared, 1, place=int(dataset.index.offset[of_shard[-1]]) + 700)
    dataset.sample(of_shard[-1])  # sound, on the local disk
    dataset.sample(of_shard[0])  # after which that copy is read no more
    with pytest.raises(StageError, match="checksum"):
        dataset.sample(of_shard[-1])


def test_a_damaged_local_shard_that_was_replaced_meanwhile_stays(shared: Path, local: Path) -> None:
    good = (local / "shards/shard-000001.tar").read_bytes()
    path = flip_bit(local, 1)
    dataset = open_dataset(shared, local)
    dataset.sample(int((dataset.index.shard == 1).nonzero()[0][-1]))  # not the damaged one
    (local / "anew").write_bytes(good)
    (local / "anew").replace(path)
    keys_of(dataset)
    assert dataset.files.counts.num_damaged_shards == 1
    assert path.read_bytes() == good


def test_damage_on_both_file_systems_is_an_error_naming_the_shared_shard(
    shared: Path, local: Path
) -> None:
    for folder in (shared, local):
        flip_bit(folder, 1)
    name = shared / "shards/shard-000001.tar"
    with pytest.raises(StageError, match=rf"{name}: sample \d{{9}}: .*checksum"):
        keys_of(open_dataset(shared, local))


def test_what_check_raises_ends_the_reading(shared: Path, local: Path) -> None:
    def fail() -> None:
        message = "the copy failed"
        raise StageError(message)

    with pytest.raises(StageError, match="the copy failed"):
        open_dataset(shared, local, fail).sample(0)


def test_threads_together_count_every_byte(shared: Path, local: Path) -> None:
    (local / "shards/shard-000001.tar").unlink()
    dataset = open_dataset(shared, local)
    threads = [threading.Thread(target=keys_of, args=(dataset,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts, total = dataset.files.counts, int(dataset.index.num_bytes.sum())
    assert counts.shared_bytes == 4 * num_bytes_of(dataset, 1)
    assert counts.local_bytes + counts.shared_bytes == 4 * total


@pytest.mark.parametrize(("start", "num_bytes"), [(-512, 512), (0, 1 << 60), (1 << 60, 512)])
def test_bytes_outside_of_the_shard_are_refused_as_a_damaged_index(
    shared: Path, start: int, num_bytes: int
) -> None:
    with pytest.raises(ValueError, match="not in the shard: damaged index"):
        open_dataset(shared).files.read(0, start, num_bytes, 0)


def test_a_locally_intact_sample_is_checked_again_in_the_shared_folder(
    shared: Path, local: Path
) -> None:
    dataset = open_dataset(shared, local)
    shard = int(dataset.index.shard[0])
    other = int((dataset.index.shard == shard).nonzero()[0][-1])
    assert other
    place = int(dataset.index.offset[0]) + 700
    flip_bit(shared, shard, place)
    flip_bit(local, shard, int(dataset.index.offset[other]) + 700)
    dataset.sample(0)  # sound in the local copy
    dataset.sample(other)  # not: the local copy of this shard is given up
    with pytest.raises(StageError, match="checksum"):
        dataset.sample(0)


def num_mapped(folder: Path) -> int:
    """How many files in `folder` this process has open; a map holds one."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(link.is_relative_to(folder) for link in links)


def test_few_shards_are_mapped_at_a_time_and_samples_outlive_their_map(
    dataset_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, few = open_dataset(dataset_dir), open_dataset(dataset_dir)
    expected = [many.sample(number) for number in range(len(many))]
    monkeypatch.setattr(shards, "max_opened", lambda: 1)
    before = num_mapped(dataset_dir)
    found = [few.sample(number) for number in range(len(few))]
    assert [sample.key for sample in found] == [sample.key for sample in expected]
    assert all((a.images[0] == b.images[0]).all() for a, b in zip(found, expected, strict=True))
    del found
    assert num_mapped(dataset_dir) == before + 1


@pytest.mark.parametrize(
    ("num_files", "num_opened"),
    [(1024, 256), (1_048_576, 16_384), (resource.RLIM_INFINITY, 16_384)],
)
def test_each_file_system_may_open_a_quarter_of_the_files_of_the_process(
    monkeypatch: pytest.MonkeyPatch, num_files: int, num_opened: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (num_files, num_files))
    assert shards.max_opened() == num_opened
