"""A data set that is opened: its samples, compared with their checksums, from either copy."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.shard_reading import opened_shards
from pipeline.data.shard_reading import shard_files as shards
from slurm_jobs.base.errors import StageError


def test_raw_samples_are_compared_with_their_checksum_at_first_read_only(
    make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_dataset(make_dataset(5, image_format="raw"))
    compared = []
    compute = shards.xxhash.xxh3_64_intdigest

    def note(view: memoryview) -> int:
        compared.append(len(view))
        return compute(view)

    monkeypatch.setattr(shards.xxhash, "xxh3_64_intdigest", note)
    first = [opened.sample(number) for number in range(5)]
    assert len(compared) == 5
    again = [opened.sample(number) for number in range(5)]
    opened.gather(list(range(5)))
    assert len(compared) == 5
    assert [sample.key for sample in again] == [sample.key for sample in first]
    assert [sample.meta for sample in again] == [sample.meta for sample in first]


@pytest.mark.parametrize("is_mapped", [True, False])
@pytest.mark.parametrize("known", [[], [8, 1], list(range(9))])
@pytest.mark.parametrize("image_format", ["png", "raw"])
def test_gathered_arrays_are_those_of_the_samples(
    make_dataset: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    image_format: str,
    known: list[int],
    is_mapped: bool,
) -> None:
    monkeypatch.setattr(opened_shards, "is_on_this_machine", lambda _path: is_mapped)
    opened = open_dataset(make_dataset(9, image_format=image_format))
    for number in known:
        opened.sample(number)
    numbers = [4, 8, 0, 4]
    read_before = opened.files.counts.shared_bytes
    found = opened.gather(numbers)
    views = opened.views(numbers)
    num_bytes = opened.index.num_bytes[numbers].sum()
    assert opened.files.counts.shared_bytes - read_before == 2 * num_bytes
    assert [bytes(view) for view in views] == [bytes(opened.raw(number)) for number in numbers]
    samples = [opened.sample(number) for number in numbers]
    assert found.keys == [sample.key for sample in samples]
    for arrays, name in ((found.input_ids, "input_ids"), (found.labels, "labels")):
        expected = [getattr(sample, name).tolist() for sample in samples]
        assert [array.tolist() for array in arrays] == expected
    images = [image.reshape(-1).tolist() for sample in samples for image in sample.images]
    assert [image.tolist() for image in found.images] == images


def test_raw_bytes_are_the_members_of_the_sample(dataset_dir: Path) -> None:
    opened = open_dataset(dataset_dir)
    with tarfile.open(fileobj=io.BytesIO(opened.raw(7))) as archive:
        names = archive.getnames()
    key = opened.sample(7).key
    assert names == [f"{key}.tokens.npy", f"{key}.meta.json", f"{key}.image0.png"]


@pytest.mark.parametrize("read", ["raw", "sample"])
def test_damage_is_found_by_each_way_of_reading(
    make_dataset: Callable[..., Path], tmp_path: Path, read: str
) -> None:
    folder = tmp_path / "set"
    shutil.copytree(make_dataset(3, image_format="raw"), folder)
    opened = open_dataset(folder)
    (shard,) = (folder / "shards").iterdir()
    data = bytearray(shard.read_bytes())
    data[int(opened.index.offset[1]) + 1000] ^= 1
    shard.write_bytes(data)
    assert getattr(opened, read)(0)
    for _ in range(2):  # what was found to be damaged is not taken for sound the next time
        with pytest.raises(StageError, match=r"shard-000000\.tar: sample \d{9}: .*checksum"):
            getattr(opened, read)(1)
    for read_several in (opened.gather, opened.views):
        with pytest.raises(StageError, match="checksum"):
            read_several([0, 1, 2])


def test_shards_and_index_are_read_from_a_copy(dataset_dir: Path, tmp_path: Path) -> None:
    for name in ("shared", "copy"):
        shutil.copytree(dataset_dir, tmp_path / name)
    shutil.rmtree(tmp_path / "shared" / "shards")
    (tmp_path / "shared" / "index.arrow").unlink()
    dataset = open_dataset(tmp_path / "shared", tmp_path / "copy")
    assert dataset.sample(3).key == open_dataset(dataset_dir).sample(3).key
    assert str(tmp_path / "shared") in dataset.where(3)


def test_index_that_is_damaged_in_the_copy_is_read_from_the_shared_folder(
    dataset_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.arrow").write_bytes(b"PAR1")
    assert len(open_dataset(dataset_dir, tmp_path)) == 23


def test_unfinished_data_set_is_refused(dataset_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset_dir, tmp_path / "set")
    (tmp_path / "set" / "dataset.json").unlink()
    with pytest.raises(StageError, match="not finished"):
        open_dataset(tmp_path / "set")


def test_edited_dataset_json_is_refused(dataset_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset_dir, tmp_path / "set")
    path = tmp_path / "set" / "dataset.json"
    path.write_text(path.read_text().replace('"num_samples": 23', '"num_samples": 22'))
    with pytest.raises(StageError, match="fingerprint"):
        open_dataset(tmp_path / "set")
