"""Folders whose tars are their rows, and folders in which something else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("names", "taken", "others"),
    [
        (["1.tar", "0.tar", "notes.txt"], ["0.tar", "1.tar"], ()),
        (["0.tar", "0.parquet", "0_stats.json"], ["0.tar"], ()),
        (["train-0001.tar", "val-0001.tar"], ["train-0001.tar"], ("val",)),
        (["train/0.tar", "train/1.tar", "test/0.tar"], ["train/0.tar", "train/1.tar"], ("test",)),
    ],
)
def test_tars_are_read_in_the_order_of_their_names(
    tmp_path: Path, names: list[str], taken: list[str], others: tuple[str, ...]
) -> None:
    table = find_table(touch(tmp_path, *names))
    assert table is not None
    assert table.kind == "tar"
    assert table.files == tuple(tmp_path / name for name in taken)
    assert table.others == others


@pytest.mark.parametrize("names", [["metadata.jsonl"], ["cats/1.jpg"], ["1.jpg"]])
def test_tars_next_to_pictures_or_their_list_are_not_the_rows(
    tmp_path: Path, names: list[str]
) -> None:
    with pytest.raises(NoTableError, match="is a folder without"):
        find_table(touch(tmp_path, "0.tar", *names))


def test_parquet_of_other_names_is_the_table(tmp_path: Path) -> None:
    table = find_table(touch(tmp_path, "0.tar", "rows.parquet"))
    assert table is not None
    assert table.kind == "parquet"


def test_compressed_tars_are_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(NoTableError, match=r"`gunzip \*\.tar\.gz`"):
        find_table(touch(tmp_path, "0.tar.gz"))
