"""Parquet and `datasets` folders as manifests: rows, slices, fingerprints and damage."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess import table_manifests
from pipeline.preprocess.manifest import folder_of, open_manifest, read_manifest, slice_range
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.manifests.messages import ManifestRow
from tests.pipeline.tables import (
    IMAGE,
    TURNS,
    captions,
    chats,
    picture,
    write_json,
    write_parquet,
    write_saved,
)

Write = Callable[[Path, list[pa.Table]], Path]


def parquet_folder(folder: Path, tables: list[pa.Table]) -> Path:
    for index, table in enumerate(tables):
        write_parquet(folder / f"train-{index:05d}-of-{len(tables):05d}.parquet", table)
    return folder


LAYOUTS: list[Write] = [parquet_folder, write_saved]


def said(row: ManifestRow) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(m.role, [(item.kind, item.value) for item in m.content]) for m in row.messages]


def test_groups_without_rows_are_no_mistake(tmp_path: Path) -> None:
    table = pa.table({"image_path": ["1.jpg", "2.jpg"], "text": ["a", "b"]})
    with pq.ParquetWriter(tmp_path / "m.parquet", table.schema, use_dictionary=False) as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)
    assert open_manifest(tmp_path / "m.parquet").num_rows == 4


@pytest.mark.parametrize("write", LAYOUTS)
def test_captions_with_their_pictures_are_rows(tmp_path: Path, write: Write) -> None:
    table = captions(20)
    folder = write(tmp_path / "m", [table.slice(0, 12), table.slice(12)])
    rows = read_manifest(folder, prompt="What?", system_prompt="Be brief.")
    assert [row.key for row in rows] == [f"{row:09d}" for row in range(20)]
    assert [row.images[0].data for row in rows] == [picture(row) for row in range(20)]
    assert said(rows[13]) == [
        ("system", [("text", "Be brief.")]),
        ("user", [("image", "13.png"), ("text", "What?")]),
        ("assistant", [("text", "caption 13")]),
    ]
    assert (rows[13].source, str(rows[13].origin)) == ("13.png", "m:row 13")
    assert folder_of(folder) == folder


@pytest.mark.parametrize("write", LAYOUTS)
def test_chats_with_lists_of_pictures_are_rows(tmp_path: Path, write: Write) -> None:
    rows = read_manifest(write(tmp_path / "m", [chats(5)]))
    assert [len(row.images) for row in rows] == [0, 1, 2, 0, 1]
    assert said(rows[2])[0] == (
        "user",
        [("image", "image 1"), ("image", "image 2"), ("text", "question 2")],
    )
    assert [row.source for row in rows] == ["n0", "n1", "n2", "n3", "n4"]
    assert rows[2].images[1].data == picture(2)
    assert {row.problem for row in rows} == {""}


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    group_rows=st.integers(1, 11),
    num_slices=st.integers(1, 12),
    limit=st.none() | st.integers(1, 50),
    layout=st.sampled_from(["parquet", "saved"]),
    batch_rows=st.integers(1, 5),
)
def test_slices_are_the_whole_for_any_number_of_them(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    sizes: list[int],
    group_rows: int,
    num_slices: int,
    limit: int | None,
    layout: str,
    batch_rows: int,
) -> None:
    folder, table = tmp_path_factory.mktemp("m"), chats(sum(sizes))
    pieces = [table.slice(sum(sizes[:index]), size) for index, size in enumerate(sizes)]
    if layout == "saved":
        write_saved(folder, pieces, batch_rows=group_rows)
    else:
        for index, piece in enumerate(pieces):
            write_parquet(folder / f"{index}.parquet", piece, group_rows=group_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_manifests, "MAX_BATCH_ROWS", batch_rows)
        manifest = open_manifest(folder, limit=limit)
        expected = sum(sizes) if limit is None else min(limit, sum(sizes))
        assert manifest.num_rows == expected
        parts = [slice_range(expected, i, num_slices) for i in range(num_slices)]
        found = [row for part in parts for row in manifest.rows(part)]
    assert [row.source for row in found] == [f"n{row}" for row in range(expected)]
    assert [row.origin.row for row in found] == list(range(expected))


def one_row(tmp_path: Path, **cells: Any) -> ManifestRow:
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array([value])
        for name, value in cells.items()
    }
    (row,) = read_manifest(write_parquet(tmp_path / "m.parquet", pa.table(arrays)))
    return row


PAIR = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("cells", "images"),
    [
        ({"image": b"png", "text": "t"}, [("image 1", b"png")]),
        ({"image": "a.png", "text": "t"}, [("a.png", None)]),
        ({"image_path": "t.tar::a.png", "text": "t"}, [("t.tar::a.png", None)]),
        ({"image": {"bytes": None, "path": "a.png"}, "text": "t"}, [("a.png", None)]),
        ({"image": {"bytes": b"", "path": None}, "text": "t"}, [("image 1", b"")]),
        ({"image": None, "image_path": "a.png", "text": "t"}, [("a.png", None)]),
        ({"messages": PAIR, "images": ["a.png", "b.png"]}, [("a.png", None), ("b.png", None)]),
        ({"messages": PAIR, "images": [b"1", b"2"]}, [("image 1", b"1"), ("image 2", b"2")]),
        ({"messages": json.dumps(PAIR), "image": b"1"}, [("image 1", b"1")]),
        ({"messages": PAIR}, []),
        (
            {
                "messages": {"role": ["user", "assistant"], "content": ["<image>q", "a"]},
                "images": [{"bytes": b"1", "path": "x/a.png"}],
            },
            [("x/a.png", b"1")],
        ),
        (
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            [],
        ),
        ({"texts": [{"user": "q", "assistant": "a", "source": "s"}], "images": [b"1"]},
         [("image 1", b"1")]),
        ({"messages": None, "text": "t", "image": b"1"}, [("image 1", b"1")]),
    ],
)  # fmt: skip
def test_ways_in_which_tables_hold_images(
    tmp_path: Path, cells: dict[str, Any], images: list[tuple[str, bytes | None]]
) -> None:
    row = one_row(tmp_path, **cells)
    assert row.problem == ""
    assert [(image.value, image.data) for image in row.images] == images
    assert [message.role for message in row.messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ({"image": None, "text": "t"}, "no image: neither a path nor bytes"),
        ({"image": b"1", "text": None}, "`text` is null, expected a string"),
        ({"image": b"1", "text": "  "}, "`text` is empty"),
        ({"image": b"1", "text": 5}, "`text` is a number, expected a string"),
        ({"messages": None}, "no turns: the cell is null"),
        ({"messages": "[{"}, "the turns are text, but no valid JSON"),
        ({"messages": "5"}, "the list of turns is empty or no list"),
        ({"messages": pa.array([[]], TURNS)}, "the list of turns is empty or no list"),
        ({"messages": PAIR, "images": [{"bytes": None, "path": None}]}, "image 1 of 1 listed has"),
        ({"texts": [{"user": "q"}]}, "`content` of a turn is null"),
        (
            {"text": pa.array([b"\xff"]).view(pa.binary()).cast(pa.binary()).view(pa.string()),
             "image": b"1"},
            "a value that cannot be read ('utf-8' codec",
        ),
    ],
)  # fmt: skip
def test_row_that_cannot_be_understood_says_why(
    tmp_path: Path, cells: dict[str, Any], problem: str
) -> None:
    assert problem in one_row(tmp_path, **cells).problem


def test_text_that_is_no_utf_8_hides_no_other_row(tmp_path: Path) -> None:
    texts = pa.array([b"one", b"\xff", b"three"], pa.binary()).view(pa.string())
    table = pa.table({"image": pa.array([b"1"] * 3), "text": texts})
    rows = read_manifest(write_parquet(tmp_path / "m.parquet", table))
    assert [bool(row.problem) for row in rows] == [False, True, False]


@pytest.mark.parametrize("write", LAYOUTS)
def test_columns_that_make_no_sample_are_told(tmp_path: Path, write: Write) -> None:
    folder = write(tmp_path / "m", [pa.table({"caption": ["a"], "url": ["b"]})])
    with pytest.raises(StageConfigError, match=r"no column has images .*found: caption, url"):
        open_manifest(folder)


def test_a_column_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a"])] * 3, names=["text", "text", "image"])
    with pytest.raises(StageConfigError, match="column text named twice"):
        open_manifest(write_saved(tmp_path / "m", [table]))


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("cut", [1, 7, 100, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, write: Write, cut: float) -> None:
    folder = write(tmp_path / "m", [captions(30)])
    (file,) = (*folder.glob("*.parquet"), *folder.glob("*.arrow"))
    size = file.stat().st_size
    os.truncate(file, size - cut if cut >= 1 else int(size * cut))
    with pytest.raises(StageConfigError, match=r"truncated|damaged"):
        open_manifest(folder)


def test_a_stream_that_is_cut_between_its_batches_is_refused(tmp_path: Path) -> None:
    folder = write_saved(tmp_path / "m", [captions(14)])
    (file,) = folder.glob("*.arrow")
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_stream(source)
        reader.read_next_batch()
        place = source.tell()
    os.truncate(file, place)
    with pytest.raises(StageConfigError, match="the stream has no end"):
        open_manifest(folder)


OFFSETS = struct.pack("<3i", 9, 18, 27)
"""Of texts of nine bytes in a record batch."""


@pytest.mark.parametrize(
    ("found", "damaged"),
    [(OFFSETS, struct.pack("<3i", 9, 1 << 30, 27)), (b"text", b"te\xff\xff")],
    ids=["offsets", "a column's name"],
)
def test_a_damaged_stream_ends_in_words_and_not_by_a_signal(
    tmp_path: Path, found: bytes, damaged: bytes
) -> None:
    folder = write_saved(tmp_path / "m", [captions(5)])
    (file,) = folder.glob("*.arrow")
    data = file.read_bytes()
    assert found in data
    file.write_bytes(data.replace(found, damaged))
    code = (
        "import sys, pathlib\n"
        "from pipeline.preprocess.manifest import read_manifest\n"
        "from slurm_jobs.shared.errors import StageConfigError\n"
        "try:\n    read_manifest(pathlib.Path(sys.argv[1]))\n"
        "except StageConfigError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ".arrow: damaged" in ended.stdout


def test_a_damaged_page_is_no_row(tmp_path: Path) -> None:
    """Where the writer gave pages checksums; without statistics a picture stands in pages alone."""
    file = write_parquet(
        tmp_path / "m.parquet",
        captions(30),
        write_page_checksum=True,
        write_statistics=False,
        use_dictionary=False,
        compression="none",
    )
    manifest = open_manifest(file)
    data = bytearray(file.read_bytes())
    place = data.index(picture(20)) + 40
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(StageConfigError, match=r"m\.parquet: damaged"):
        list(manifest.rows(range(30)))


def test_a_column_whose_name_or_place_is_damaged_is_told_with_the_file(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "m.parquet", captions(3), compression="none")
    data = bytearray(file.read_bytes())
    data[data.rindex(b"text")] = 0xFF  # of the chunk, in the footer
    file.write_bytes(data)
    with pytest.raises(StageConfigError, match=r"m\.parquet: damaged"):
        open_manifest(file)


def test_folder_that_is_no_table_or_several_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageConfigError, match="is a folder without"):
        open_manifest(tmp_path / "empty")
    write_json(tmp_path / "dict" / "dataset_dict.json", {"splits": ["train", "test"]})
    with pytest.raises(
        StageConfigError, match=r"give the folder of one: .*dict/train, .*dict/test"
    ):
        open_manifest(tmp_path / "dict")
    for split in ("train", "test"):
        write_parquet(tmp_path / "hub" / f"{split}-00000-of-00001.parquet", captions(3))
    with pytest.raises(StageConfigError, match="the splits test, train; link or move"):
        open_manifest(tmp_path / "hub")
    (write_saved(tmp_path / "gone", [captions(3)]) / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(StageConfigError, match=r"lists data-00000-of-00001\.arrow, which does not"):
        open_manifest(tmp_path / "gone")


def change_text(table: pa.Table) -> pa.Table:
    texts = table["text"].to_pylist()
    return table.set_column(1, "text", pa.array([*texts[:-3], "caption XX", *texts[-2:]]))


def change_picture(table: pa.Table) -> pa.Table:
    images = table["image"].to_pylist()
    data = bytearray(images[-3]["bytes"])
    data[40] ^= 1
    changed = [*images[:-3], {**images[-3], "bytes": bytes(data)}, *images[-2:]]
    return table.set_column(0, "image", pa.array(changed, IMAGE))


def bare_parquet(folder: Path, tables: list[pa.Table]) -> Path:
    """A footer without least and greatest values, which may be pictures; sizes as they are."""
    (table,) = tables
    return write_parquet(
        folder / "a.parquet", table, write_statistics=False, compression="none"
    ).parent


@pytest.mark.parametrize("write", [write_saved, bare_parquet])
def test_fingerprint_covers_the_words_and_not_the_pictures_bytes(
    tmp_path: Path, write: Write
) -> None:
    table = captions(20)
    tables = {"a": table, "b": table, "words": change_text(table), "pixels": change_picture(table)}
    prints = {
        name: open_manifest(write(tmp_path / name, [table])).fingerprint
        for name, table in tables.items()
    }
    assert prints["a"] == prints["b"]
    assert prints["words"] != prints["a"]
    assert prints["pixels"] == prints["a"]


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("kept", [True, False])
def test_a_table_that_changes_gives_no_row_of_the_new_one(
    tmp_path: Path, write: Write, kept: bool
) -> None:
    table = captions(20)
    folder = write(tmp_path / "m", [table])
    index_dir = tmp_path / "indexes" if kept else None
    manifest = open_manifest(folder, index_dir=index_dir)
    assert manifest.fingerprint_now() == manifest.fingerprint
    write(folder, [change_text(table)])
    assert manifest.fingerprint_now() != manifest.fingerprint
    with pytest.raises(StageError, match="changed while its rows were read"):
        list(manifest.rows(range(20)))
    assert [row.origin.row for row in open_manifest(folder, index_dir=index_dir).rows(range(20))]


@pytest.mark.parametrize("write", LAYOUTS)
def test_index_is_made_once_and_read_by_the_next(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "m", [captions(20)])
    first = open_manifest(folder, index_dir=tmp_path / "indexes")

    def refuse(*_: object) -> None:
        raise AssertionError("looked through again")

    monkeypatch.setattr(table_manifests.TableManifest, "_inspect", refuse)
    second = open_manifest(folder, index_dir=tmp_path / "indexes")
    assert second.fingerprint == first.fingerprint
    assert [row.source for row in second.rows(range(18, 20))] == ["18.png", "19.png"]


def test_a_table_that_was_only_touched_is_unchanged(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "m.parquet", captions(5))
    manifest = open_manifest(file)
    os.utime(file, (1, 1))
    assert manifest.fingerprint_now() == manifest.fingerprint


def test_an_arrow_stream_alone_is_a_manifest(tmp_path: Path) -> None:
    folder = write_saved(tmp_path / "m", [captions(5)])
    assert len(read_manifest(folder / "data-00000-of-00001.arrow")) == 5


def test_dictionary_encoded_columns_of_arrow_are_refused_with_the_remedy(tmp_path: Path) -> None:
    table = pa.table({"image": ["a"], "text": pa.array(["t"]).dictionary_encode()})
    with pytest.raises(StageConfigError, match="dictionary-encoded column; cast it"):
        open_manifest(write_saved(tmp_path / "m", [table]))
    (row,) = read_manifest(write_parquet(tmp_path / "m.parquet", table))
    assert row.problem == ""
