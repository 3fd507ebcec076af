"""Files that are no manifest, named as such by `check` and by the job."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest
from PIL import Image

from pipeline.preprocess.manifest import open_manifest
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.file_signatures import HEAD_BYTES
from slurm_jobs.formats.manifests.foreign_files import foreign_format

ROWS = b"image_path,text\n" + b"a.png,words\n" * 20


def zipped(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, ROWS)
    return stream.getvalue()


def feather() -> bytes:
    stream = io.BytesIO()
    pyarrow.feather.write_feather(pa.table({"text": ["a"]}), stream)
    return stream.getvalue()


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "JPEG")
    return stream.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a)")
    return connection.serialize()


FILES: list[tuple[str, Callable[[], bytes], str]] = [
    ("good.csv.gz", lambda: gzip.compress(ROWS), "packed with gzip, which is not read"),
    ("good.csv", lambda: gzip.compress(ROWS), "`gunzip -k good.csv`"),
    ("a b.jsonl.bz2", lambda: bz2.compress(ROWS), "`bunzip2 -k 'a b.jsonl.bz2'`"),
    ("m.jsonl.xz", lambda: lzma.compress(ROWS), "`unxz -k m.jsonl.xz`"),
    ("m.jsonl.zst", lambda: b"\x28\xb5\x2f\xfd" + ROWS, "`unzstd m.jsonl.zst`"),
    ("m.csv.zip", lambda: zipped("m.csv"), "`unzip m.csv.zip`"),
    ("m.xlsx", lambda: zipped("xl/workbook.xml"), "a spreadsheet (.xlsx); save it as CSV"),
    ("m.xls", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a spreadsheet (.xls)"),
    ("m.csv", lambda: b"version https://git-lfs.github.com/spec/v1\noid x\n", "`git lfs pull`"),
    ("m.feather", feather, "write its rows as Parquet"),
    ("m.sqlite", database, "a file of the format SQLite"),
    ("m.jpg", picture, "a picture; a manifest lists pictures"),
    ("m.json", lambda: b'\x1e{"image": "a.png"}\n\x1e{}\n', "a JSON text sequence (RFC 7464)"),
    ("a b.jsonseq", lambda: b"\x1e{}", "`tr -d '\\036' < 'a b.jsonseq' > 'a b.lines.jsonl'`"),
    ("m.jsonl", lambda: b"\x1e{}\n", "m.jsonl > m.lines.jsonl`"),
    ("m.tsv", lambda: b"image_path\ttext\na.png\twords\n", "tab-separated text"),
    ("m.txt", lambda: b"image_path,text\na.png,words\n", "a name that ends in `.csv`"),
    ("m.jsonl", lambda: b"<!DOCTYPE html><html>", "the page of a failed download"),
]


@pytest.mark.parametrize(("name", "data", "words"), FILES, ids=[name for name, _, _ in FILES])
def test_a_file_that_is_no_manifest_is_named_by_the_job(
    tmp_path: Path, name: str, data: Callable[[], bytes], words: str
) -> None:
    (tmp_path / name).write_bytes(data())
    with pytest.raises(StageConfigError) as caught:
        open_manifest(tmp_path / name)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_json_lines_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text('{"messages": []}\n')
    assert open_manifest(tmp_path / "m.txt").num_rows == 1


def test_a_folder_of_pictures_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.JPG").write_bytes(picture())
    with pytest.raises(StageConfigError, match="it holds pictures: a manifest lists them"):
        open_manifest(tmp_path / "photos")


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_a_folder_with_a_list_of_its_pictures_names_the_list(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jpg").write_bytes(picture())
    (tmp_path / name).write_text("file_name,text\na.jpg,cat\n")
    with pytest.raises(StageConfigError, match=rf"{tmp_path}/{name} lists its images: name that"):
        open_manifest(tmp_path)


@pytest.mark.parametrize("data", [ROWS, b'{"a": 1}\n', b"[]", b"", b"BZ,text\n"])
def test_text_is_nothing_foreign(data: bytes) -> None:
    assert foreign_format("m.csv", data[:HEAD_BYTES]) is None
