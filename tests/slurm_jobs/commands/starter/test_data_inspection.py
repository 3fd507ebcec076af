"""What `init` sees of a user's data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.data_inspection import captions_win, inspect_data, is_image_folder
from slurm_jobs.commands.starter.first_spec import Request, begin
from slurm_jobs.commands.starter.place_choice import inspect_cluster


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    ("name", "text", "num_rows"),
    [
        ("a.csv", "image_path,text\na.jpg,cat\nb.jpg,dog\n", 2),
        ("a.csv", "image_path,text\na.jpg,cat\nb.jpg,dog", 2),
        ("a.jsonl", '{"id": 1}\n{"id": 2}\n{"id": 3}\n', 3),
        ("a.jsonl", "", 0),
    ],
)
def test_rows_of_a_text_are_its_lines(tmp_path: Path, name: str, text: str, num_rows: int) -> None:
    manifest = tmp_path / name
    manifest.write_text(text)
    found = inspect_data(manifest, as_named=f"../{name}")
    assert (found.manifest, found.num_rows) == (f"../{name}", num_rows)
    assert not found.is_exact


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    touch(tmp_path / "cat" / os.fsdecode(b"caf\xe9.jpg"))
    with pytest.raises(InputError, match="its name is not UTF-8"):
        inspect_data(tmp_path / "cat" / os.fsdecode(b"caf\xe9.jpg"), as_named="m")


def test_rows_of_parquet_are_counted_over_its_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for number in range(3):
        pq.write_table(pa.table({"text": ["x"] * 5}), tmp_path / f"{number}.parquet")
    found = inspect_data(tmp_path, as_named="data")
    assert (found.num_rows, found.is_exact) == (15, True)


def test_damaged_parquet_has_an_unknown_number_of_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\0" * 40)
    assert inspect_data(tmp_path / "a.parquet", as_named="a").num_rows is None


def test_what_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: No such file"):
        inspect_data(tmp_path / "none.csv", as_named="none.csv")


def test_folders_of_tables_and_of_nothing_are_no_folders_of_images(tmp_path: Path) -> None:
    assert not is_image_folder(tmp_path)
    assert not is_image_folder(tmp_path / "none")
    touch(tmp_path / "a.parquet", tmp_path / "1.jpg")
    assert not is_image_folder(tmp_path)


@pytest.mark.parametrize("list_name", ["00000.parquet", "metadata.parquet", "metadata.csv"])
def test_captions_next_to_images_win_over_a_list_of_urls(tmp_path: Path, list_name: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    (data / "00000").mkdir(parents=True)
    (data / "00000" / "1.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    rows = {"file_name": ["https://example.org/1.jpg"], "text": ["of the list"]}
    if list_name.endswith(".csv"):
        (data / list_name).write_text("file_name,text\nhttps://example.org/1.jpg,of the list\n")
    else:
        pq.write_table(pa.table(rows), data / list_name)
    listed = data / list_name if list_name.startswith("metadata") else data
    assert not captions_win(data, listed)  # images without texts
    (data / "00000" / "1.txt").write_text("next to it")
    assert captions_win(data, listed)
    assert is_image_folder(data)
    written = begin(Request(folder=tmp_path / "spec", data=data), inspect_cluster(is_local=True))
    manifest = (tmp_path / "spec" / "finetune.jsonl").read_text()
    assert manifest == '{"image_path": "00000/1.jpg", "text": "next to it"}\n'
    assert any(f"({list_name})" in line for line in written.said)


@pytest.mark.parametrize("image", ["1.jpg", "photos.tar::cats/1.jpg"])
def test_a_list_of_images_that_are_there_wins(tmp_path: Path, image: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "1.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "1.txt").write_text("next to it")
    (tmp_path / "photos.tar").touch()
    pq.write_table(pa.table({"image": [image], "text": ["of the list"]}), tmp_path / "a.parquet")
    assert not captions_win(tmp_path, tmp_path)
    assert not is_image_folder(tmp_path)
