"""Manifests of text by blocks: any slice of any file reads as the whole does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess.manifest import open_manifest
from pipeline.preprocess.manifests import text_manifest
from pipeline.preprocess.slice_rows import slice_range
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.manifests import text as text_module
from slurm_jobs.formats.manifests.messages import ManifestRow

CELLS = st.sampled_from(
    ["x.png", "a", '"a, b"', '"two\nlines"', '"q""q"', 'a "b" c', "", " ", "é", '"r\r\nn"']
)
CSV_LINES = st.lists(CELLS, max_size=3).map(",".join)
GOOD = json.dumps(
    {"messages": [{"role": "assistant", "content": "é😀"}], "id": "é"}, ensure_ascii=False
)
JSON_LINES = st.sampled_from([GOOD, GOOD, "", "  ", "{broken", "\ufeff", '{"messages": []}'])
JSON_VALUES = st.sampled_from([json.loads(GOOD), {}, 1, None, "], [", [[]], {"a": "é😀"}])


@st.composite
def manifests(draw: st.DrawFn) -> tuple[str, str]:
    """Name and text of a manifest that can be read."""
    kind = draw(st.sampled_from(["m.csv", "m.jsonl", "m.json"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    if kind == "m.csv":
        lines = draw(st.lists(CSV_LINES, max_size=8))
        return kind, mark + draw(st.sampled_from(["\n", "\r\n"])).join(["image_path,text", *lines])
    if kind == "m.jsonl":
        return kind, mark + "\n".join(["{}", *draw(st.lists(JSON_LINES, max_size=8))])
    text = json.dumps(
        draw(st.lists(JSON_VALUES, max_size=8)),
        indent=draw(st.sampled_from([None, 1])),
        ensure_ascii=draw(st.booleans()),
    )
    return kind, mark + text


def by_blocks_of(num_bytes: int, patch: pytest.MonkeyPatch) -> None:
    for module in (text_manifest, text_module):
        patch.setattr(module, "BLOCK_BYTES", num_bytes)
    patch.setattr(text_manifest, "_WORTH_KEEPING_BYTES", 0)


@settings(max_examples=300, deadline=None)
@given(manifests(), st.integers(1, 60), st.integers(1, 9))
def test_rows_do_not_depend_on_blocks_slices_or_a_kept_index(
    tmp_path_factory: pytest.TempPathFactory,
    made: tuple[str, str],
    block_bytes: int,
    num_slices: int,
) -> None:
    name, text = made
    folder = tmp_path_factory.mktemp("m")
    (folder / name).write_text(text, newline="")
    whole = open_manifest(folder / name)
    expected = list(whole.rows(range(whole.num_rows)))
    assert [row.origin.row for row in expected] == list(range(whole.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        by_blocks_of(block_bytes, patch)
        found: list[ManifestRow] = []
        for index in range(num_slices):
            manifest = open_manifest(folder / name, index_dir=folder / "indexes")
            assert manifest.fingerprint == whole.fingerprint
            found += manifest.rows(slice_range(manifest.num_rows, index, num_slices))
    assert found == expected
    assert len(list((folder / "indexes").iterdir())) == 1


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_limit_counts_the_first_rows_and_changes_no_fingerprint(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("{}\n" * 10)
    with pytest.MonkeyPatch.context() as patch:
        by_blocks_of(4, patch)
        manifest = open_manifest(path, limit=limit)
        assert manifest.num_rows == min(limit, 10)
        assert len(list(manifest.rows(range(manifest.num_rows)))) == min(limit, 10)
        assert manifest.fingerprint == open_manifest(path).fingerprint


def test_index_that_is_kept_is_read_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(f"{GOOD}\n" * 10)
    by_blocks_of(100, monkeypatch)
    open_manifest(path, index_dir=tmp_path / "indexes")

    def refuse(*_: object) -> None:
        raise AssertionError("looked through again")

    monkeypatch.setattr(text_manifest, "_make_index", refuse)
    manifest = open_manifest(path, index_dir=tmp_path / "indexes")
    assert [row.origin.row for row in manifest.rows(range(7, 10))] == [7, 8, 9]


@pytest.mark.parametrize("damage", [b"", b"garbage", b"[]", b'{"num_rows": 9}', None])
def test_index_that_is_damaged_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(f"{GOOD}\n" * 10)
    by_blocks_of(100, monkeypatch)
    open_manifest(path, index_dir=tmp_path / "indexes")
    (file,) = (tmp_path / "indexes").iterdir()
    whole = file.read_bytes()
    file.write_bytes(
        whole.replace(b'"num_rows": 10', b'"num_rows": 9 ') if damage is None else damage
    )
    assert open_manifest(path, index_dir=tmp_path / "indexes").num_rows == 10
    assert file.read_bytes() == whole


def test_bytes_changed_in_place_give_no_rows_until_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and times are unchanged: the index is found under the old name."""
    path = tmp_path / "m.jsonl"
    path.write_text(f"{GOOD}\n" * 10)
    by_blocks_of(100, monkeypatch)
    manifest = open_manifest(path, index_dir=tmp_path / "indexes")
    path.write_text((f"{GOOD}\n" * 9) + GOOD.replace("é😀", "é🙃") + "\n")
    with pytest.raises(
        StageError, match=r"m\.jsonl: changed while its rows were read \(the bytes at"
    ):
        list(manifest.rows(range(10)))
    assert not list((tmp_path / "indexes").iterdir())
    assert len(list(manifest.rows(range(2)))) == 2
    assert open_manifest(path, index_dir=tmp_path / "indexes").fingerprint != manifest.fingerprint


@pytest.mark.parametrize("end", [" ", "\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_text_of_a_whole_document_is_one_cell_of_csv(tmp_path: Path, quote: str, end: str) -> None:
    text = "words" * 40_000 + (end if quote else "") + "words"
    path = tmp_path / "m.csv"
    path.write_text(f"image_path,text\na.png,{quote}{text}{quote}\nb.png,words\n")
    rows = list(open_manifest(path).rows(range(2)))
    assert [row.problem for row in rows] == ["", ""]
    assert text in [content.value for said in rows[0].messages for content in said.content]


@pytest.mark.parametrize("name", ["{}.png", "photos/{}.JPG", "key-{}"])
@pytest.mark.parametrize(
    ("num_rows", "last"), [(20, 'a pipe of 6"'), (20_000, 'a pipe of 6"'), (20_000, "a pipe")]
)
def test_rows_that_an_open_quote_swallows_are_an_error(
    tmp_path: Path, name: str, num_rows: int, last: str
) -> None:
    lines = [f"{name.format(row)},a picture of number {row} on a table" for row in range(num_rows)]
    lines[2] = f'{name.format(2)},"a quote that nobody closes'
    lines[-3] = f"{name.format(num_rows - 3)},{last}"
    path = tmp_path / "m.csv"
    path.write_text("\n".join(["image_path,text", *lines, ""]))
    swallowed = name.format(3).replace(".", r"\.")
    with pytest.raises(
        StageConfigError, match=rf"m\.csv:4: .* is a complete row: '{swallowed},a pict"
    ):
        open_manifest(path)


CUT = "a carriage return"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("b.png,a ball.\rIt is not red", CUT),
        ("b.png,a ball.\rc.png,words", CUT),
        ('b.png,"a ball."\rIt is not red', CUT),
        ('b.png,a "ball"x\r"c.png",words', CUT),
        ('b.png,"a"ball\rc.png,words', "not valid CSV"),
        ('b.png,"a ball.\rIt is not red"', ""),
        ("b.png,a ball.\r", ""),
        ("\rb.png,a ball.", ""),
    ],
)
@pytest.mark.parametrize("last", ["c.png,words\n", "c.png,words", "c.png,words\r\n"])
def test_carriage_return_cuts_no_text(tmp_path: Path, row: str, problem: str, last: str) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(f"image_path,text\na.png,words\n{row}\n{last}".encode())
    rows = list(open_manifest(path).rows(range(open_manifest(path).num_rows)))
    assert [bool(each.problem) for each in rows] == [False, bool(problem), False]
    assert problem in rows[1].problem
    assert [each.source for each in (rows[0], rows[2])] == ["a.png", "c.png"]


def test_a_last_row_cut_by_a_carriage_return_is_reported_without_a_newline(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(b"image_path,text\na.png,words\nb.png,a ball.\rIt is not red")
    rows = list(open_manifest(path).rows(range(open_manifest(path).num_rows)))
    assert [CUT in each.problem for each in rows] == [False, True]


@pytest.mark.parametrize("end", ["\r", "\r\n", "\r\r\n", "\n\r", "\n"])
def test_lines_of_csv_end_as_any_system_ends_them(tmp_path: Path, end: str) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(end.join(["image_path,text", "a.png,one", "b.png,two", ""]).encode())
    rows = list(open_manifest(path).rows(range(open_manifest(path).num_rows)))
    assert [(each.problem, each.source) for each in rows] == [("", "a.png"), ("", "b.png")]


@pytest.mark.parametrize("first", ["image_path,text", "text,image_path"])
def test_text_over_lines_with_commas_is_a_text(tmp_path: Path, first: str) -> None:
    verse = "Roses are red, violets are blue\nnone is so sweet, none is as true"
    text = "\n".join(f"{verse} {number}" for number in range(3_000))
    cells = {"image_path": "a.png", "text": f'"{text}"'}
    row = ",".join(cells[name] for name in first.split(","))
    path = tmp_path / "m.csv"
    path.write_text(f"{first}\n{row}\n{row}\n")
    rows = list(open_manifest(path).rows(range(2)))
    assert [row.problem for row in rows] == ["", ""]
    assert text in [content.value for said in rows[1].messages for content in said.content]


def test_a_missing_or_truncated_manifest_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(f"{GOOD}\n" * 10)
    manifest = open_manifest(path)
    path.write_text(f"{GOOD}\n" * 9)
    with pytest.raises(StageError, match="changed while"):
        list(manifest.rows(range(10)))
    path.unlink()
    with pytest.raises(StageError, match="the file no longer exists"):
        list(manifest.rows(range(10)))
    assert manifest.fingerprint_now() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{}, {]", "Expecting property name"),
        ("[{} {}]", "Expecting ',' delimiter"),
        ("[{}, ]", "Expecting value|Illegal trailing comma"),
        ("[{}", "Expecting ',' delimiter"),
        ("[", "Expecting value"),
        ("[{}] x", "Extra data"),
        ("[] []", "Extra data"),
    ],
)
def test_an_error_in_a_json_list_has_the_message_of_json(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(StageConfigError, match=rf"not valid JSON \((?:{words})"):
        open_manifest(path)
