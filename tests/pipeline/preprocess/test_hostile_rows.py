"""Rows that take gigabytes or hours: each is a reject with its reason, and the slice continues."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import tracemalloc
import zipfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipeline.preprocess import archives
from pipeline.preprocess.archives import list_zip
from pipeline.preprocess.images.decode import decode_upright, open_image
from pipeline.preprocess.images.image_formats import MAX_JPEG_SCANS
from pipeline.preprocess.manifests import table_manifest
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.manifests import bounded_lines
from slurm_jobs.formats.tar_headers import BrokenArchiveError
from tests.pipeline.build import run_preprocess
from tests.pipeline.preprocess.slices import rejects_of

ROW_LIMIT = 5_000_000
LARGE = 60_000_000
"""Bytes of a hostile image; the limit is set to a megabyte."""
MOST_MEMORY = 50_000_000


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(stream, "PNG")
    return stream.getvalue()


def sparse_file(folder: Path) -> str:
    (folder / "sparse.png").write_bytes(png())
    with (folder / "sparse.png").open("r+b") as stream:
        stream.truncate(20_000_000_000)
    return "sparse.png"


def zip_member(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", bytes(LARGE))
    return "a.zip::bomb.png"


def zip_member_with_a_false_size(folder: Path) -> str:
    zip_member(folder)
    data = (folder / "a.zip").read_bytes()
    (folder / "b.zip").write_bytes(data.replace(struct.pack("<I", LARGE), struct.pack("<I", 1000)))
    return "b.zip::bomb.png"


def tar_member(folder: Path) -> str:
    with tarfile.open(folder / "a.tar", "w") as archive:
        info = tarfile.TarInfo("bomb.png")
        info.size = LARGE
        archive.addfile(info, io.BytesIO(bytes(LARGE)))
    return "a.tar::bomb.png"


def jpeg_of_many_scans(folder: Path) -> str:
    stream = io.BytesIO()
    Image.new("L", (64, 64)).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    last_scan = data[data.rfind(b"\xff\xda") : -2]
    (folder / "scans.jpg").write_bytes(data[:-2] + last_scan * MAX_JPEG_SCANS + b"\xff\xd9")
    return "scans.jpg"


def tiff_of_many_strips(folder: Path) -> str:
    """Each of the numbers would be an object of Python."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, "TIFF")
    data, num = bytearray(stream.getvalue()), 1_200_000
    (start,) = struct.unpack_from("<I", data, 4)
    (num_tags,) = struct.unpack_from("<H", data, start)
    for place in range(start + 2, start + 2 + 12 * num_tags, 12):
        if struct.unpack_from("<H", data, place)[0] in (273, 279):
            struct.pack_into("<HII", data, place + 2, 4, num, len(data))
    with zipfile.ZipFile(folder / "strips.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.tif", bytes(data) + array("I", range(1000, 1000 + num)).tobytes())
    return "strips.zip::a.tif"


def huge_header(folder: Path) -> str:
    data = png()
    size = struct.pack(">II", 60_000, 60_000)
    (folder / "huge.png").write_bytes(data[:16] + size + data[24:])
    return "huge.png"


IMAGES: dict[str, tuple[Callable[[Path], str], str]] = {
    "a sparse file": (sparse_file, "too_many_bytes"),
    "a member of a zip": (zip_member, "too_many_bytes"),
    "a member that inflates to more than it states": (
        zip_member_with_a_false_size,
        "corrupt_image",
    ),
    "a member of a tar": (tar_member, "too_many_bytes"),
    "a JPEG of many scans": (jpeg_of_many_scans, "corrupt_image"),
    "a TIFF of many strips": (tiff_of_many_strips, "corrupt_image"),
    "a header of billions of pixels": (huge_header, "corrupt_image too_many_pixels"),
}


@pytest.fixture
def traced(tmp_path: Path, processor_dir: Path) -> Iterator[None]:
    """Fails a test whose Python objects and arrays took too much memory.

    A good row is preprocessed before, because modules that are imported first count as memory.
    """
    (tmp_path / "first.png").write_bytes(png())
    (tmp_path / "first.csv").write_text("image,text\nfirst.png,a\n")
    run_preprocess(tmp_path / "warm", config_of(tmp_path / "first.csv", processor_dir), 1)
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_MEMORY


def config_of(manifest: Path, processor_dir: Path) -> dict[str, object]:
    return {
        "manifest": str(manifest),
        "processor": str(processor_dir),
        "num_threads": 2,
        "max_reject_share": 1.0,
        "max_image_mb": 6,
    }


@pytest.mark.parametrize("kind", IMAGES)
def test_a_hostile_image_is_one_reject(tmp_path, processor_dir, request, kind):
    make, reasons = IMAGES[kind]
    (tmp_path / "good.png").write_bytes(png())
    rows = ["image,text", f"{make(tmp_path)},a", "good.png,b"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    request.getfixturevalue("traced")
    _, folder = run_preprocess(tmp_path / "out", config_of(tmp_path / "rows.csv", processor_dir), 1)
    (reject,) = rejects_of(folder)
    assert reject["reason"] in reasons.split()
    assert reject["row"] == 0
    assert reject["place"].endswith("rows.csv:2")


def test_a_picture_in_a_table_is_held_to_the_limit(tmp_path, processor_dir):
    pictures = [png() + bytes(7_000_000), png()]
    table = pa.table({"image": pa.array(pictures, pa.binary()), "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "rows.parquet", compression="zstd")
    _, folder = run_preprocess(
        tmp_path / "out", config_of(tmp_path / "rows.parquet", processor_dir), 1
    )
    (reject,) = rejects_of(folder)
    assert (reject["row"], reject["reason"]) == (0, "too_many_bytes")


def write_lines(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write(b'{"image": "good.png", "text": "a"}\n{"image": "good.png", "text": "')
        stream.seek(ROW_LIMIT + 1000)
        stream.write(b'"}\n{"image": "good.png", "text": "b"}\n')


def write_csv(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write(b"image,text\ngood.png,a\ngood.png,")
        stream.seek(ROW_LIMIT + 1000)
        stream.write(b"\ngood.png,b\n")


def write_list(path: Path) -> None:
    row = json.dumps({"image": "good.png", "text": "a"})
    long = json.dumps({"image": "good.png", "text": "x" * (ROW_LIMIT + 1000)})
    path.write_text(f"[{row},\n{long},\n{row}]")


LINES = {
    "rows.jsonl": (write_lines, ":2"),
    "rows.csv": (write_csv, ":3"),
    "rows.json": (write_list, ""),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("num_slices", [1, 3])
def test_a_row_that_is_too_long_is_one_reject(
    tmp_path, processor_dir, monkeypatch, name, num_slices
):
    monkeypatch.setattr(bounded_lines, "MAX_ROW_BYTES", ROW_LIMIT)
    write, place = LINES[name]
    write(tmp_path / name)
    (tmp_path / "good.png").write_bytes(png())
    _, folder = run_preprocess(
        tmp_path / "out", config_of(tmp_path / name, processor_dir), num_slices
    )
    (reject,) = rejects_of(folder)
    assert (reject["row"], reject["reason"]) == (1, "bad_row")
    assert "bytes are not read" in reject["message"]
    assert f"{name}{place}" in reject["place"]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_value_that_many_rows_share_is_not_repeated(tmp_path, processor_dir, is_nested):
    """Of a file of some kilobytes, each batch would take a gigabyte."""
    num_rows = 500
    pictures = pa.DictionaryArray.from_arrays(
        pa.array([0] * num_rows + [1], pa.int32()), pa.array([bytes(7_000_000), png()], pa.binary())
    )
    column = pa.StructArray.from_arrays([pictures], ["bytes"]) if is_nested else pictures
    table = pa.table({"image": column, "text": ["a"] * (num_rows + 1)})
    pq.write_table(table, tmp_path / "rows.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "rows.parquet").stat().st_size < 10_000
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    _, folder = run_preprocess(
        tmp_path / "out", config_of(tmp_path / "rows.parquet", processor_dir), 1
    )
    assert pool.max_memory() <= max(before, 200_000_000)
    assert {reject["reason"] for reject in rejects_of(folder)} == {"too_many_bytes"}
    assert len(rejects_of(folder)) == num_rows


def test_a_row_of_a_table_with_too_many_bytes_is_one_reject(tmp_path, processor_dir, monkeypatch):
    monkeypatch.setattr(table_manifest, "MAX_BULK_BYTES", 1000)
    monkeypatch.setattr(table_manifest, "MAX_TABLE_ROW_BYTES", 10_000)
    table = pa.table({"image": [png(), png()], "text": ["a", "b" * 20_000]})
    pq.write_table(table, tmp_path / "rows.parquet")
    _, folder = run_preprocess(
        tmp_path / "out", config_of(tmp_path / "rows.parquet", processor_dir), 1
    )
    (reject,) = rejects_of(folder)
    assert (reject["row"], reject["reason"]) == (1, "bad_row")
    assert "rows of more than 10,000 are not read" in reject["message"]


def test_a_zips_directory_that_takes_all_memory_is_not_read(tmp_path, monkeypatch):
    zip_member(tmp_path)
    monkeypatch.setattr(archives, "_MAX_DIRECTORY_BYTES", 20)
    message = "its directory has"
    with (
        (tmp_path / "a.zip").open("rb") as stream,
        pytest.raises(BrokenArchiveError, match=message),
    ):
        list_zip(stream.fileno())


TURN = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
LONG_TEXTS = {
    "characters": {"text": "a b" * 1_400_000},
    "turns": {"conversations": TURN * 1001},
}


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_a_text_that_takes_gigabytes_to_tokenise_is_one_reject(tmp_path, processor_dir, kind):
    (tmp_path / "good.png").write_bytes(png())
    rows = [{"image": "good.png", **LONG_TEXTS[kind]}, {"image": "good.png", "text": "b"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {**config_of(tmp_path / "rows.jsonl", processor_dir), "max_too_long_share": 0.5}
    _, folder = run_preprocess(tmp_path / "out", config, 1)
    (reject,) = rejects_of(folder)
    assert (reject["row"], reject["reason"]) == (0, "too_long")
    assert "are not tokenised" in reject["message"]
    with pytest.raises(StageError, match="Keep these rows by dividing each into several rows, or"):
        run_preprocess(tmp_path / "strict", {**config, "max_too_long_share": 0.0}, 1)
    with pytest.raises(StageConfigError, match="divide it into several rows, or set"):
        run_preprocess(tmp_path / "error", {**config, "too_long": "error"}, 1)


def test_markers_behind_a_jpeg_are_not_counted_as_its_scans():
    """Phones append a video to a photograph, and cameras append further images."""
    stream = io.BytesIO()
    Image.new("L", (64, 64)).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    trailing = b"\xff\xda\0\2" * 2 * MAX_JPEG_SCANS
    image = open_image(data + trailing, max_pixels=10_000, name="a")
    assert decode_upright(image, "a").size == (64, 64)


def test_an_end_inside_a_segment_of_a_jpeg_hides_no_scans(tmp_path):
    data = (tmp_path / jpeg_of_many_scans(tmp_path)).read_bytes()
    thumbnail = b"\xff\xe1\0\6\xff\xd9\xff\xd9"
    with pytest.raises(SampleRejectedError, match="over 500 scans"):
        open_image(data[:2] + thumbnail + data[2:], max_pixels=10_000, name="a")
