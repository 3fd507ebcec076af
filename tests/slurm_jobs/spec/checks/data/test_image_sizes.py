"""`check` compares the headers of the first rows' images with the limits of their `preprocess`."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.slurm_jobs.spec.checks.data.photo_specs import PHOTO, SMALL, picture, write
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC
from tests.slurm_jobs.spec.conftest import Check, Notes

FOOT = "7 rows checked"
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
BEGINS = " begins with b'a dog\\n': convert such files to PNG or JPEG, or correct the names"


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    images = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 12_845_056}
    (tmp_path / "proc/processor_config.json").write_text(json.dumps({"image_processor": images}))
    (tmp_path / "proc/tokenizer.json").write_text("{}")
    (tmp_path / "proc/chat_template.jinja").touch()
    (tmp_path / "photo.png").write_bytes(picture(PHOTO))
    (tmp_path / "small.png").write_bytes(picture(SMALL))


def photo_csv(folder: Path) -> str:
    (folder / "m.csv").write_text("image_path,text\nphoto.png,a\nphoto.png,b\n")
    return "m.csv"


def photo_uri(folder: Path) -> str:
    uri = f"data:image/png;base64,{base64.b64encode(picture(PHOTO)).decode()}"
    write(folder, uri, name="m.json")
    (folder / "m.json").write_text(f"[{(folder / 'm.json').read_text()}]")
    return "m.json"


def photo_table(folder: Path) -> str:
    image = {"bytes": picture(PHOTO), "path": None}
    pq.write_table(pa.Table.from_pylist([{"image": image, "text": "a"}]), folder / "m.parquet")
    return "m.parquet"


@pytest.mark.parametrize("manifest", [photo_csv, photo_uri, photo_table])
def test_a_manifest_is_refused_if_all_photos_are_longer_than_max_tokens(
    check: Check, notes: Notes, tmp_path: Path, manifest: Callable[[Path], str]
) -> None:
    spec = SPEC.format(name=manifest(tmp_path))
    (line,) = check(spec)
    assert "6:5: stages.p.config.max_tokens: max_tokens is 2,048, but " in line
    assert "(100 %) are longer by their images alone (median 15,552 tokens, at most 15,552)" in line
    assert "none of them becomes a sample (if other rows are shorter, set max_too_long_" in line
    assert ". Set image_pixels.max (802816 gives at most 1,024 tokens an image), or raise" in line
    for fitting in ("image_pixels: {max: 802816}", "max_tokens: 16384"):
        assert check(f"{spec}      {fitting}\n") == []
        assert notes(f"{spec}      {fitting}\n") == []


def test_tokens_of_all_images_of_a_row_count(check: Check, tmp_path: Path) -> None:
    spec = write(tmp_path, ["small.png"] * 8) + "      max_tokens: 31\n"
    (line,) = check(spec)
    assert "at most 32" in line
    assert check(spec.replace("31", "32")) == []


def test_rows_with_more_images_than_max_images_are_counted(
    check: Check, notes: Notes, tmp_path: Path
) -> None:
    many = ["small.png"] * 9
    spec = write(tmp_path, many, many)
    (line,) = check(spec)
    assert "stages.p.config.max_images: max_images is 8, but 2 of 2 rows" in line
    assert check(f"{spec}      max_images: 9\n") == []
    (note,) = notes(write(tmp_path, many, *["small.png"] * 6))
    assert f"1 of {FOOT} (14.3 %) have more images (at most 9). Raise max_images" in note


@pytest.mark.parametrize("processor", ["known", "unknown"])
def test_a_small_max_pixels_is_explained(
    check: Check, notes: Notes, tmp_path: Path, processor: str
) -> None:
    if processor == "unknown":
        (tmp_path / "proc/processor_config.json").write_text("{}")
        (tmp_path / "proc/preprocessor_config.json").write_text("{}")
    key = "      max_pixels: 1003520\n"
    (note,) = notes(write(tmp_path, "photo.png", *["small.png"] * 6) + key)
    assert note.startswith("9:19: stages.p.config.max_pixels: 1 of 7 rows")
    assert "more than 1,003,520 pixels (the largest: 4032 x 3024), and are rejected" in note
    assert "image_pixels.max is the limit that images are resized to" in note
    (line,) = check(write(tmp_path, "photo.png") + key)
    assert line.startswith("9:19: stages.p.config.max_pixels: 1 of 1 rows")


@pytest.mark.parametrize("name", ["gone.png", "broken.png", "pipe", "nul\0.png", "t.tar::a.png"])
def test_an_image_that_cannot_be_measured_is_left_to_the_job(
    check: Check, tmp_path: Path, name: str
) -> None:
    (tmp_path / "broken.png").write_bytes(picture(PHOTO)[:20])
    os.mkfifo(tmp_path / "pipe")
    spec = write(tmp_path, name, "photo.png")
    (line,) = check(spec)
    assert "1 of 1 rows" in line
    lines = check(write(tmp_path, name))
    assert [line for line in lines if "its image does not exist" not in line] == []


@pytest.mark.parametrize("data", [b"", b"a dog\n", b"<!DOCTYPE html>", b"\0" * 20, HEIC, "table"])
def test_a_manifest_of_which_no_file_is_an_image_is_refused(
    check: Check, tmp_path: Path, data: bytes | str
) -> None:
    if data == "table":
        image = {"bytes": b"a dog\n", "path": None}
        pq.write_table(pa.Table.from_pylist([{"image": image, "text": "a"}]), tmp_path / "m.jsonl")
        (line,) = check(SPEC.format(name="m.jsonl"))
        assert line.endswith("its image is not an image file; image 1 (m.jsonl:row 0)" + BEGINS)
        return
    (tmp_path / "x.png").write_bytes(data if isinstance(data, bytes) else b"")
    spec = write(tmp_path, *["x.png"] * 3)
    (line,) = check(spec)
    assert line.startswith(
        "7:17: stages.p.config.manifest: m.jsonl: none of 3 images checked is an image file; x.png "
        f"(m.jsonl:1) {f'begins with {data[:16]!r}: convert' if data else 'is empty: copy'}"
    )
    assert check(spec + "      max_reject_share: 1\n") == []


def test_some_files_that_are_no_images_are_noted(notes: Notes, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a dog\n")
    spec = write(tmp_path, "gone.png", "small.png", "x.txt")
    (note,) = [note for note in notes(spec) if "image files" in note]
    assert "1 of 2 images checked are not image files; x.txt (m.jsonl:3)" + BEGINS in note
