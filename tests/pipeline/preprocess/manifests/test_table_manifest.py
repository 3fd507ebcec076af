"""Parquet and `datasets` folders as manifests: rows, slices, fingerprints and damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess.manifest import folder_of, open_manifest, read_manifest
from pipeline.preprocess.manifests import table_manifest
from pipeline.preprocess.slice_rows import slice_range
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.manifests.messages import ManifestRow
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

Write = Callable[..., Path]


def parquet_folder(folder: Path, tables: list[pa.Table], *, batch_rows: int = 7) -> Path:
    for index, table in enumerate(tables):
        file = folder / f"train-{index:05d}-of-{len(tables):05d}.parquet"
        write_parquet(file, table, group_rows=batch_rows)
    return folder


def one_stream(folder: Path, tables: list[pa.Table]) -> Path:
    return write_saved(folder, tables) / "data-00000-of-00001.arrow"


LAYOUTS: list[Write] = [parquet_folder, write_saved]
CAPTIONS = captions(30)


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


@pytest.mark.parametrize("write", [*LAYOUTS, one_stream])
def test_chats_with_lists_of_pictures_are_rows(tmp_path: Path, write: Write) -> None:
    rows = read_manifest(write(tmp_path / "m", [chats(5)]))
    assert [len(row.images) for row in rows] == [0, 1, 2, 0, 1]
    asked = [("image", "image 1"), ("image", "image 2"), ("text", "question 2")]
    assert said(rows[2])[0] == ("user", asked)
    assert [row.source for row in rows] == ["n0", "n1", "n2", "n3", "n4"]
    assert rows[2].images[1].data == picture(2)
    assert {row.problem for row in rows} == {""}


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    group_rows=st.integers(1, 11),
    num_slices=st.integers(1, 12),
    limit=st.none() | st.integers(1, 50),
    write=st.sampled_from(LAYOUTS),
    batch_rows=st.integers(1, 5),
)
def test_slices_are_the_whole_for_any_number_of_them(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    sizes: list[int],
    group_rows: int,
    num_slices: int,
    limit: int | None,
    write: Write,
    batch_rows: int,
) -> None:
    table = chats(sum(sizes))
    pieces = [table.slice(sum(sizes[:index]), size) for index, size in enumerate(sizes)]
    folder = write(tmp_path_factory.mktemp("m"), pieces, batch_rows=group_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_manifest, "MAX_BATCH_ROWS", batch_rows)
        manifest = open_manifest(folder, limit=limit)
        expected = sum(sizes) if limit is None else min(limit, sum(sizes))
        assert manifest.num_rows == expected
        parts = [slice_range(expected, i, num_slices) for i in range(num_slices)]
        found = [row for part in parts for row in manifest.rows(part)]
    assert [row.source for row in found] == [f"n{row}" for row in range(expected)]
    assert [row.origin.row for row in found] == list(range(expected))


DICTIONARY = pa.array(["t"]).dictionary_encode()
PAIR = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"image": b"png", "text": "t"}, [("image 1", b"png")]),
        ({"image_path": "t.tar::a.png", "text": "t"}, [("t.tar::a.png", None)]),
        ({"image": {"bytes": None, "path": "a.png"}, "text": "t"}, [("a.png", None)]),
        ({"image": {"bytes": b"", "path": None}, "text": "t"}, [("image 1", b"")]),
        ({"messages": PAIR, "images": ["a.png", "b.png"]}, [("a.png", None), ("b.png", None)]),
        ({"messages": PAIR, "images": [b"1", b"2"]}, [("image 1", b"1"), ("image 2", b"2")]),
        ({"messages": json.dumps(PAIR), "image": b"1"}, [("image 1", b"1")]),
        ({"messages": {"role": ["user", "assistant"], "content": ["<image>q", "a"]},
          "images": [{"bytes": b"1", "path": "x/a.png"}]}, [("x/a.png", b"1")]),
        ({"texts": [{"user": "q", "assistant": "a", "source": "s"}], "images": [b"1"]},
         [("image 1", b"1")]),
        ({"image": "a", "text": DICTIONARY}, [("a", None)]),
        ({"image": None, "text": "t"}, "no image: neither a path nor bytes"),
        ({"image": b"1", "text": None}, "`text` is null, expected a string"),
        ({"image": b"1", "text": "  "}, "`text` is empty"),
        ({"image": b"1", "text": 5}, "`text` is a number, expected a string"),
        ({"messages": None}, "no turns: the cell is null"),
        ({"messages": "[{"}, "the turns are text, but no valid JSON"),
        ({"messages": "5"}, "the list of turns is empty or no list"),
        ({"messages": pa.array([[]], TURNS)}, "the list of turns is empty or no list"),
        ({"messages": PAIR, "images": [{"bytes": None, "path": None}]}, []),
        ({"messages": PAIR, "images": [{"bytes": b"", "path": None}]}, [("image 1", b"")]),
        ({"texts": [{"user": "q"}]}, "`content` of a turn is null"),
    ],
)  # fmt: skip
def test_ways_in_which_tables_hold_images_and_words(
    tmp_path: Path, cells: dict[str, Any], expected: list[tuple[str, bytes | None]] | str
) -> None:
    columns = {k: v if isinstance(v, pa.Array) else [v] for k, v in cells.items()}
    (row,) = read_manifest(write_parquet(tmp_path / "m.parquet", pa.table(columns)))
    if isinstance(expected, str):
        assert expected in row.problem
    else:
        assert row.problem == ""
        assert [(image.value, image.data) for image in row.images] == expected
        assert [message.role for message in row.messages] == ["user", "assistant"]


def test_text_that_is_no_utf_8_hides_no_other_row(tmp_path: Path) -> None:
    texts = pa.array([b"one", b"\xff", b"three"], pa.binary()).view(pa.string())
    table = pa.table({"image": pa.array([b"1"] * 3), "text": texts})
    first, bad, last = read_manifest(write_parquet(tmp_path / "m.parquet", table))
    assert "a value that cannot be read ('utf-8' codec" in bad.problem
    assert (first.problem, last.problem) == ("", "")


NO_SAMPLE = pa.table({"caption": ["a"], "url": ["b"]})
TWICE = pa.table([pa.array(["a"])] * 3, names=["text", "text", "image"])
ENCODED = pa.table({"image": ["a"], "text": DICTIONARY})


@pytest.mark.parametrize(
    ("write", "table", "words"),
    [
        *((write, NO_SAMPLE, r"no column has images .*found: caption, url") for write in LAYOUTS),
        (write_saved, TWICE, "column text named twice"),
        (write_saved, ENCODED, "dictionary-encoded column; cast it"),
    ],
    ids=["Parquet without images", "Arrow without images", "a name twice", "a dictionary"],
)
def test_columns_that_make_no_sample_are_refused(
    tmp_path: Path, write: Write, table: pa.Table, words: str
) -> None:
    with pytest.raises(StageConfigError, match=words):
        open_manifest(write(tmp_path / "m", [table]))


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("cut", [1, 7, 100, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, write: Write, cut: float) -> None:
    folder = write(tmp_path / "m", [CAPTIONS])
    (file,) = (*folder.glob("*.parquet"), *folder.glob("*.arrow"))
    size = file.stat().st_size
    os.truncate(file, size - cut if cut >= 1 else int(size * cut))
    with pytest.raises(StageConfigError, match=r"truncated|damaged"):
        open_manifest(folder)


def damage(file: Path, last: bytes) -> None:
    """Change the first byte of the last occurrence of these bytes."""
    data = bytearray(file.read_bytes())
    data[data.rindex(last)] ^= 0xFF
    file.write_bytes(data)


def test_a_damaged_page_is_no_row(tmp_path: Path) -> None:
    """Where the writer gave pages checksums; without statistics a picture is in pages alone."""
    options = {"write_statistics": False, "use_dictionary": False, "compression": "none"}
    file = tmp_path / "m.parquet"
    manifest = open_manifest(write_parquet(file, CAPTIONS, write_page_checksum=True, **options))
    damage(file, picture(20)[40:])
    with pytest.raises(StageConfigError, match=r"m\.parquet: damaged"):
        list(manifest.rows(range(30)))


def test_a_damaged_column_name_or_offset_is_refused_with_the_file(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "m.parquet", CAPTIONS, compression="none")
    damage(file, b"text")  # of the chunk, in the footer
    with pytest.raises(StageConfigError, match=r"m\.parquet: damaged"):
        open_manifest(file)


def test_folder_that_is_no_table_or_several_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_json(tmp_path / "dict" / "dataset_dict.json", {"splits": ["train", "test"]})
    for split in ("a", "b"):
        write_parquet(tmp_path / "hub" / f"{split}-00000-of-00001.parquet", captions(3))
    (write_saved(tmp_path / "gone", [captions(3)]) / "data-00000-of-00001.arrow").unlink()
    for name, words in {
        "empty": "is a folder without",
        "dict": r"train/state\.json does not exist; copy the folder again",
        "hub": "holds the splits a, b, and none of them is plainly for training",
        "gone": r"lists data-00000-of-00001\.arrow, which does not",
    }.items():
        with pytest.raises(StageConfigError, match=words):
            open_manifest(tmp_path / name)


def change_text(table: pa.Table) -> pa.Table:
    texts = table["text"].to_pylist()
    texts[-3] = "caption XX"
    return table.set_column(1, "text", pa.array(texts))


def change_picture(table: pa.Table) -> pa.Table:
    images = table["image"].to_pylist()
    data = bytearray(images[-3]["bytes"])
    data[40] ^= 1
    images[-3]["bytes"] = bytes(data)
    return table.set_column(0, "image", pa.array(images, IMAGE))


def bare_parquet(folder: Path, tables: list[pa.Table]) -> Path:
    """A footer without least and greatest values, which may be pictures; sizes as they are."""
    options = {"write_statistics": False, "compression": "none"}
    return write_parquet(folder / "a.parquet", tables[0], **options).parent


@pytest.mark.parametrize("write", [write_saved, bare_parquet])
def test_fingerprint_covers_the_words_and_not_the_pictures_bytes(
    tmp_path: Path, write: Write
) -> None:
    table = captions(20)
    first, again, words, pixels = (
        open_manifest(write(tmp_path / str(number), [each])).fingerprint
        for number, each in enumerate((table, table, change_text(table), change_picture(table)))
    )
    assert first == again == pixels != words


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("kept", [True, False])
def test_a_table_that_changes_gives_no_row_of_the_new_one(
    tmp_path: Path, write: Write, kept: bool
) -> None:
    folder = write(tmp_path / "m", [CAPTIONS])
    index_dir = tmp_path / "indexes" if kept else None
    manifest = open_manifest(folder, index_dir=index_dir)
    assert manifest.fingerprint_now() == manifest.fingerprint
    for file in folder.iterdir():
        os.utime(file, (1, 1))  # a file that was only touched is unchanged
    assert manifest.fingerprint_now() == manifest.fingerprint
    write(folder, [change_text(CAPTIONS)])
    assert manifest.fingerprint_now() != manifest.fingerprint
    with pytest.raises(StageError, match="changed while its rows were read"):
        list(manifest.rows(range(30)))
    assert [row.origin.row for row in open_manifest(folder, index_dir=index_dir).rows(range(30))]


@pytest.mark.parametrize("write", LAYOUTS)
def test_index_is_made_once_and_read_by_the_next(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "m", [captions(20)])
    first = open_manifest(folder, index_dir=tmp_path / "indexes")
    monkeypatch.delattr(table_manifest.TableManifest, "_inspect")
    second = open_manifest(folder, index_dir=tmp_path / "indexes")
    assert second.fingerprint == first.fingerprint
    assert [row.source for row in second.rows(range(18, 20))] == ["18.png", "19.png"]
