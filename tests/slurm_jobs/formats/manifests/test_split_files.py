"""Splits of a folder of tables: one is for training, the others are named like folders in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurm_jobs.formats.manifests.split_files import num_missing
from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError


def _parquet(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    return folder


def _saved(folder: Path, *splits: str) -> Path:
    for split in splits:
        (folder / split).mkdir(parents=True)
        (folder / split / "data-0.arrow").touch()
        state = {"_data_files": [{"filename": "data-0.arrow"}]}
        (folder / split / "state.json").write_text(json.dumps(state))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
    return folder


@pytest.mark.parametrize(
    ("names", "taken", "split", "others"),
    [
        (["a.parquet", "b.parquet"], ["a.parquet", "b.parquet"], "", ()),
        (["data/part-0.parquet"], ["data/part-0.parquet"], "", ()),
        (
            ["train-00001-of-00002.parquet", "train-00000-of-00002.parquet"],
            ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
            "",
            (),
        ),
        (
            ["data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"],
            ["data/train-00000-of-00001.parquet"],
            "train",
            ("test",),
        ),
        (["test.parquet", "train.parquet"], ["train.parquet"], "train", ("test",)),
        (["data/test-0.parquet"], ["data/test-0.parquet"], "test", ()),
        (
            ["train/0000.parquet", "train/0001.parquet", "validation/0000.parquet"],
            ["train/0000.parquet", "train/0001.parquet"],
            "train",
            ("validation",),
        ),
        (
            ["train_sft-00000-of-00001.parquet", "test_sft-00000-of-00001.parquet"],
            ["train_sft-00000-of-00001.parquet"],
            "train_sft",
            ("test_sft",),
        ),
    ],
)
def test_the_files_of_the_training_split_are_taken(
    tmp_path: Path, names: list[str], taken: list[str], split: str, others: tuple[str, ...]
) -> None:
    table = find_table(_parquet(tmp_path, *names))
    assert table is not None
    assert [str(path.relative_to(tmp_path)) for path in table.files] == taken
    assert (table.split, table.others) == (split, others)


@pytest.mark.parametrize("inner", ["", "data/"])
def test_another_split_is_named_like_a_folder(tmp_path: Path, inner: str) -> None:
    names = [f"{inner}{split}-00000-of-00001.parquet" for split in ("train", "test")]
    table = find_table(_parquet(tmp_path, *names) / "test")
    assert table is not None
    assert [path.name for path in table.files] == ["test-00000-of-00001.parquet"]
    with pytest.raises(FileNotFoundError):
        find_table(tmp_path / "tests")


def test_a_saved_dictionary_of_splits_gives_the_training_split(tmp_path: Path) -> None:
    table = find_table(_saved(tmp_path / "saved", "test", "train"))
    assert table is not None
    assert table.files == (tmp_path / "saved/train/data-0.arrow",)
    assert (table.split, table.others) == ("train", ("test",))


@pytest.mark.parametrize("splits", [("a", "b"), ("train", "train_small", "train_large"), ()])
def test_without_one_plain_training_split_the_user_must_name_one(
    tmp_path: Path, splits: tuple[str, ...]
) -> None:
    folder = _saved(tmp_path / "saved", *splits) if splits else tmp_path / "saved"
    if not splits:
        folder.mkdir()
        (folder / "dataset_dict.json").write_text('{"splits": []}')
    if "train" in splits:
        table = find_table(folder)
        assert table is not None
        assert table.split == "train"
        return
    with pytest.raises(NoTableError, match="none of them is plainly for training"):
        find_table(folder)


@pytest.mark.parametrize("name", ["../train", "/etc/train", ".."])
def test_a_split_that_names_another_folder_is_none(tmp_path: Path, name: str) -> None:
    _saved(tmp_path / "train", "train")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/dataset_dict.json").write_text(json.dumps({"splits": [name]}))
    with pytest.raises(NoTableError):
        find_table(tmp_path / "saved")


@pytest.mark.parametrize(
    ("names", "taken", "others"),
    [
        (["chartqa_train.parquet", "chartqa_test.parquet"], ["chartqa_train.parquet"], 1),
        (["train_000.parquet", "train_001.parquet", "val_000.parquet"], ["train_000.parquet"], 1),
        (["coco-train-00.tar", "coco-val-00.tar"], ["coco-train-00.tar"], 1),
    ],
)
def test_a_split_is_known_by_a_word_of_the_name(
    tmp_path: Path, names: list[str], taken: list[str], others: int
) -> None:
    for name in names:
        (tmp_path / name).touch()
    table = find_table(tmp_path)
    assert table is not None
    assert [path.name for path in table.files[:1]] == taken
    assert not [path for path in table.files if "train" not in path.name]
    assert len(table.others) == others


@pytest.mark.parametrize("stray", ["extra.parquet", "00000.parquet"])
def test_a_file_of_no_split_next_to_held_out_ones_is_refused(tmp_path: Path, stray: str) -> None:
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet", stray):
        (tmp_path / name).touch()
    with pytest.raises(NoTableError, match=f"{stray}, which names no split, next to test-00000"):
        find_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "stray"),
    [
        ("0.tar", "1.tar.gz"),
        ("0.tar", "1.tgz"),
        ("0.tar", "1.TAR"),
        ("data/train-0.parquet", "data/train-1.parquet.zst"),
        ("train/0.parquet", "train/1.Parquet"),
    ],
)
def test_files_that_are_not_read_beside_those_that_are_make_no_table(
    tmp_path: Path, name: str, stray: str
) -> None:
    for each in (name, stray):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).touch()
    message = f"{Path(stray).name}, which is not read, next to {Path(name).name}: decompress or"
    with pytest.raises(NoTableError, match=re.escape(message)):
        find_table(tmp_path)


def test_a_folder_that_is_called_like_a_file_is_none_of_them(tmp_path: Path) -> None:
    for name in ("0.parquet", "1.parquet/part.parquet", "2.parquet.gz/part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    table = find_table(tmp_path)
    assert table is not None
    assert [path.name for path in table.files] == ["0.parquet"]


@pytest.mark.parametrize(
    ("places", "total", "number"),
    [([0, 1, 2], 3, 0), ([0, 2], 3, 1), ([4], 12, 11), ([0, 0], 2, 1)],
)
def test_files_that_the_names_of_others_count_are_missing(
    places: list[int], total: int, number: int
) -> None:
    names = [f"train-{place:05}-of-{total:05}-{place}.parquet" for place in places]
    assert num_missing([Path(name) for name in names]) == number
    assert num_missing([Path(name) for name in (*names, "rows.parquet")]) == 0
