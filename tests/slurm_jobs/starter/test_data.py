"""What `init` sees of a user's data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_jobs.common.errors import InputError
from slurm_jobs.starter.data import captions_of, is_image_folder, look_at


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
        ("a.json", '[{"id": 1},\n {"id": 2}]\n', None),
    ],
)
def test_rows_of_a_text_are_its_lines_and_of_a_list_unknown(
    tmp_path: Path, name: str, text: str, num_rows: int | None
) -> None:
    manifest = tmp_path / name
    manifest.write_text(text)
    found = look_at(manifest, as_named=f"../{name}")
    assert (found.manifest, found.num_rows) == (f"../{name}", num_rows)
    assert num_rows is None or not found.is_exact


def test_a_name_that_no_manifest_can_hold_is_told(tmp_path: Path) -> None:
    touch(tmp_path / "cat" / os.fsdecode(b"caf\xe9.jpg"))
    with pytest.raises(InputError, match=r"caf\\udce9\.jpg': its name is no UTF-8"):
        captions_of(tmp_path)
    with pytest.raises(InputError, match="its name is no UTF-8"):
        look_at(tmp_path / "cat" / os.fsdecode(b"caf\xe9.jpg"), as_named="m")


def test_rows_of_parquet_are_counted_over_its_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for number in range(3):
        pq.write_table(pa.table({"text": ["x"] * 5}), tmp_path / f"{number}.parquet")
    found = look_at(tmp_path, as_named="data")
    assert (found.num_rows, found.is_exact) == (15, True)


def test_damaged_parquet_has_an_unknown_number_of_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\0" * 40)
    assert look_at(tmp_path / "a.parquet", as_named="a").num_rows is None


def test_what_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: No such file"):
        look_at(tmp_path / "none.csv", as_named="none.csv")


def test_texts_beside_images_are_their_words(tmp_path: Path) -> None:
    touch(tmp_path / "b" / "dog.PNG", tmp_path / "cat.jpg", tmp_path / "none.webp")
    (tmp_path / "cat.txt").write_text('a "cat",\n on a mat\n')
    (tmp_path / "b" / "dog.txt").write_text("\ufeffein Hund")
    touch(tmp_path / ".hidden" / "x.jpg", tmp_path / "notes.md")
    assert is_image_folder(tmp_path)
    text, num_images, num_left = captions_of(tmp_path)
    assert text == 'image_path,text\nb/dog.PNG,ein Hund\ncat.jpg,"a ""cat"", on a mat"\n'
    assert (num_images, num_left) == (2, 1)


def test_folders_of_classes_are_the_words_where_there_are_no_texts(tmp_path: Path) -> None:
    touch(tmp_path / "red_square" / "1.jpg", tmp_path / "x" / "deep" / "2.jpg", tmp_path / "3.jpg")
    text, num_images, num_left = captions_of(tmp_path)
    assert text.splitlines()[1:] == ["red_square/1.jpg,red square", "x/deep/2.jpg,deep"]
    assert (num_images, num_left) == (2, 1)


def test_images_without_any_words_are_refused_with_what_to_do(tmp_path: Path) -> None:
    touch(tmp_path / "1.jpg")
    with pytest.raises(InputError, match="1 images and no words for them: put a text file"):
        captions_of(tmp_path)


def test_a_text_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    touch(tmp_path / "1.jpg")
    (tmp_path / "1.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"1\.txt: no UTF-8 \(byte 3\)"):
        captions_of(tmp_path)


def test_folders_of_tables_and_of_nothing_are_no_folders_of_images(tmp_path: Path) -> None:
    assert not is_image_folder(tmp_path)
    assert not is_image_folder(tmp_path / "none")
    touch(tmp_path / "a.parquet", tmp_path / "1.jpg")
    assert not is_image_folder(tmp_path)
