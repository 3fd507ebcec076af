"""Splits of a folder of tables: one is for training, the others are named like folders in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
