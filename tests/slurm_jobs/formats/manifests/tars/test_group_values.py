"""Groups of members as rows: what each extension means, and what is refused by its key."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_set import FieldMap
from slurm_jobs.formats.manifests.tars.group_values import group_row
from slurm_jobs.formats.manifests.tars.tar_groups import open_tar
from tests.slurm_jobs.formats.manifests.builders import ASKED, spoken
from tests.webdataset_tars import write_tar

Members = Mapping[str, bytes | str | Mapping[str, Any]]
PAIR = {"a.jpg": b"picture", "a.txt": "a cat\n"}
JSON = {"caption": "a cat", "url": "https://a.org/1.jpg", "key": "a", "exif": "{}", "sha256": "0"}


def read(path: Path, fields: FieldMap | None = None, **columns: Any) -> ManifestRow:
    """The first row of a tar."""
    with open_tar(path) as tar:
        group = next(tar.groups())
        origin = RowOrigin(row=0, line=None, manifest=path, key=group.key)
        options = RowOptions(columns=Columns(**columns))
        return group_row(origin, group, tar.read, options, fields)


@pytest.fixture
def row_of(tmp_path: Path) -> Any:
    def make(members: Members, fields: FieldMap | None = None, **columns: Any) -> ManifestRow:
        return read(write_tar(tmp_path / "t.tar", members), fields, **columns)

    return make


@pytest.mark.parametrize(
    ("members", "columns"),
    [
        (PAIR, {}),
        ({**PAIR, "a.json": JSON}, {}),
        ({"a.webp": b"picture", "a.json": JSON}, {}),
        ({**PAIR, "a.json": {**JSON, "image": "train/7.jpg"}}, {}),
        ({**PAIR, "a.json": {**JSON, "caption": "two cats"}}, {"text": "caption"}),
        ({**PAIR, "a.json": {**JSON, "caption": "two cats"}}, {"ignore": ("json",)}),
        ({**PAIR, "a.mp4": b"video", "a.meta.json": "{}"}, {"ignore": ("mp4", "meta.json")}),
        ({**PAIR, "a.png": b"mask"}, {"ignore": ("png",)}),
        ({"a.jpg": b"picture", "a.cls": "a cat"}, {"text": "cls"}),
        ({**PAIR, "a.json": {**JSON, "text": "a cat"}}, {}),
    ],
)
def test_a_picture_with_its_words_is_a_caption(
    row_of: Any, members: Members, columns: dict[str, Any]
) -> None:
    row = row_of(members, **columns)
    assert row.problem == ""
    is_second = columns.get("text") == "caption"
    assert row.messages[-1].text == ("two cats" if is_second else "a cat")
    assert [image.data for image in row.images] == [b"picture"]
    assert (row.source, str(row.origin)) == ("a", "t.tar:a")


def test_json_of_turns_is_a_conversation_that_shows_the_pictures_by_number(row_of: Any) -> None:
    turns = [{"from": "human", "value": "<image> or <image>?"}, {"from": "gpt", "value": "Both."}]
    members = {"a.img10.jpg": b"ten", "a.img2.jpg": b"two", "a.json": {"conversations": turns}}
    row = row_of(members)
    assert row.problem == ""
    assert [image.data for image in row.images] == [b"two", b"ten"]
    assert spoken(row) == [("user", " or ?"), ("assistant", "Both.")]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"a.jpg": b"x"}, "a has no text: neither a.txt nor a.json"),
        ({"a.txt": "a cat"}, "no image: neither a path nor bytes"),
        ({"a.jpg": b"x", "a.txt": ""}, "`text` is empty"),
        ({"a.jpg": b"x", "a.txt": "", "a.json": {"caption": None}}, "`caption` is null"),
        ({**PAIR, "a.json": {**JSON, "caption": "a dog"}}, "`caption` and `text` differ"),
        ({**PAIR, "a.json": "{"}, "`a.json` is no valid JSON"),
        ({**PAIR, "a.json": b"\xff"}, "`a.json` is not UTF-8"),
        ({"a.jpg": b"x", "a.json": "[3]"}, "the keys are"),
        ({"a.jpg": b"x", "a.cls": "3"}, "the keys are"),
        ({**PAIR, "a.mp4": b"x"}, "`a.mp4` is not read; set `columns: {ignore: [mp4]}`"),
        ({**PAIR, "a.npy": b"x"}, "`a.npy` is not read; set `columns: {ignore: [npy]}`"),
        ({"rows.csv": "image_path,text"}, "`rows.csv` is not read; unpack a list of rows"),
        ({**PAIR, "a.seg.png": b"x"}, "`a.seg.png` is not read"),
        ({**PAIR, "a.more.json": "{}"}, "`a.more.json` is not read"),
        ({**PAIR, "a.png": b"x"}, "the pictures `jpg` and `png`, whose order is not known"),
        ({**PAIR, "a.0.png": b"x"}, "the pictures `jpg` and `0.png`, whose order is not known"),
        ({**PAIR, "a.JPG": b"x"}, "two members are called a.JPG"),
        ({**PAIR, "a.json": {**JSON, "images": ["1.jpg", "2.jpg"]}}, "lists ["),
        ({**PAIR, "a.json": {"rejected": "a dog"}}, "`rejected` holds preference data"),
    ],
)
def test_what_would_be_read_by_half_is_refused(row_of: Any, members: Members, problem: str) -> None:
    row = row_of(members)
    assert problem in row.problem
    assert row.source == str(row.origin).removeprefix("t.tar:")


def test_an_ignored_video_without_a_picture_still_refuses_the_row(row_of: Any) -> None:
    row = row_of({"a.mp4": b"x", "a.json": ASKED}, ignore=("mp4",))
    assert "`mp4`, which `columns.ignore` names, holds video" in row.problem


def test_a_link_in_place_of_a_picture_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "b.jpg"
        tar.addfile(link)
    assert "`a.jpg` is a link" in read(tmp_path / "t.tar").problem


def test_a_field_map_says_what_is_read(row_of: Any) -> None:
    fields = {"image": [["png"], ["jpg"]], "question": [["json", "q", "0"]], "answers": [["txt"]]}
    members = {"a.jpg": b"x", "a.json": {"q": ["What?"]}, "a.txt": "A cat.", "a.mp4": b"not named"}
    row = row_of(members, fields)
    assert spoken(row) == [("user", "What?"), ("assistant", "A cat.")]
    assert [image.data for image in row.images] == [b"x"]
    row = row_of(members, {**fields, "answers": [["json", "answers"]]})
    assert row.problem == "`a.json` has no `answers`, which `field_map` names"
    row = row_of(members, {**fields, "image": [["webp"]]})
    assert row.problem == "there is no member a.webp, which `field_map` names"
