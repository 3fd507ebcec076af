"""Images that are missing, or outside of their folder, are reported before anything is queued."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes

PICTURE = b"GIF89a"


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def messages(*images: str) -> dict[str, object]:
    content = [{"type": "image", "path": name} for name in images]
    question = {"role": "user", "content": [*content, {"type": "text", "text": "?"}]}
    return {"messages": [question, {"role": "assistant", "content": "!"}]}


def write(folder: Path, *images: str) -> None:
    """Write m.jsonl, with a row for each image."""
    (folder / "m.jsonl").write_text("\n".join(json.dumps(messages(name)) for name in images))


TURNS = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]


ROWS = {
    "m.csv": "image_path,text\nin.jpg,words\n/pool/cats/a.jpg,words\n/pool/dogs/b.jpg,words\n",
    "m.jsonl": "\n".join(
        json.dumps(row)
        for row in (
            messages("/pool/cats/a.jpg"),
            {"conversations": TURNS, "image": "/pool/dogs/b.jpg"},
            {**messages(), "images": [{"path": "/pool/dogs/c.jpg"}]},
            {"messages": "no list"},
        )
    ),
    "m.json": json.dumps(
        [{"conversations": TURNS, "image": "/pool/cats/a.jpg"}, messages("/pool/b")]
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_first_image_outside_is_reported_with_the_key_that_allows_it(
    check: Check, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(ROWS[name])
    (line,) = check(SPEC.format(name=name))
    assert line.startswith(
        f"7:17: stages.p.config.manifest: {name} names the image /pool/cats/a.jpg, which does not "
        f"exist here and is outside of {tmp_path}; correct the path, or write it relative to"
    )
    assert line.endswith("those of the first rows are in /pool")


@pytest.mark.parametrize("is_missing", [True, False])
def test_an_image_elsewhere_must_exist_where_the_spec_allows_other_folders(
    check: Check, tmp_path: Path, *, is_missing: bool
) -> None:
    (tmp_path / "lists").mkdir()
    manifest, image = tmp_path / "lists/m.jsonl", tmp_path / "pool/a.jpg"
    manifest.write_text("\n".join([json.dumps(messages(str(image)))] * 2))
    if not is_missing:
        image.parent.mkdir()
        image.write_bytes(PICTURE)
    spec = SPEC.format(name="lists/m.jsonl")
    (line,) = check(spec)
    assert ("does not exist here" in line, "set `images_within`" in line) == (is_missing, True)
    lines = check(spec + f"      images_within: {tmp_path}\n")
    said = "pool/a.jpg does not exist here: the path is absolute; correct it, or write it relative "
    assert [("none of 2 images exists" in line, said in line) for line in lines] == (
        [(True, True)] * is_missing
    )


def test_a_path_that_climbs_out_is_found_and_one_that_comes_back_is_not(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/a.jpg").write_bytes(PICTURE)
    manifest = tmp_path / "lists/m.jsonl"
    manifest.write_text(json.dumps(messages("../lists/a.jpg")))
    assert check(SPEC.format(name="lists/m.jsonl")) == []
    manifest.write_text(json.dumps(messages("../images/a.jpg")))
    [problem] = check(SPEC.format(name="lists/m.jsonl"))
    assert problem.endswith("are in images")  # the fixture leaves its folder out


def test_a_member_of_an_archive_is_where_its_archive_is(check: Check, tmp_path: Path) -> None:
    (tmp_path / "photos.tar").touch()
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("photos.tar::../../a.jpg")))
    assert check(SPEC.format(name="m.jsonl")) == []
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("/pool/photos.tar::a.jpg")))
    assert check(SPEC.format(name="m.jsonl"))[0].endswith("are in /pool")


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [[{"role": 1}], 3, null], "images": [3, null, {}], "image": {}}',
        "{" * 5000,
        '{"image": "a.jpg"} trailing',
        '{"image": "' + "x" * 70_000,
        '{"image": "/9j/' + "A" * 5000 + '"}',  # the picture itself
        "\0",
    ],
)
def test_rows_that_cannot_be_understood_are_left_to_the_job(
    check: Check, tmp_path: Path, text: str
) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("a.jpg")) + "\n" + text)
    assert check(SPEC.format(name="m.jsonl")) == []


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("b.jpg", "c.jpg"), "none of 2 images exists; b.jpg means b.jpg: set image_root to"),
        (("b.jpg",), "its image does not exist; b.jpg means b.jpg: set image_root to the folder"),
        (("photos.tar::a.jpg",), "its image does not exist; photos.tar::a.jpg means photos.tar: "),
        (("a.JPG",), "its image does not exist; a.JPG means a.JPG: write `a.jpg`, which is there"),
        (("~/a.jpg",), "its image does not exist; ~/a.jpg means ~/a.jpg: `~` is not expanded in a"),
        (("x\\b.jpg", "x\\c.jpg"), "x\\b.jpg: it has backslashes: write the plain path"),
    ],
)
def test_a_manifest_whose_images_are_all_missing_is_refused(
    check: Check, tmp_path: Path, names: tuple[str, ...], missing: str
) -> None:
    write(tmp_path, *names)
    (line,) = check(SPEC.format(name="m.jsonl"))
    assert missing in line


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (("b.jpg", "a.jpg"), {}),
        (("b.jpg",), {"processor: proc": "processor: proc\n      max_reject_share: 1"}),
        (("b.jpg",), {"  p:": "  x: {shell: tar xf photos.tar}\n  p:\n    after: x"}),
        (
            ("/of/nodes/b.jpg",),
            {
                "cluster: local": "cluster: auto",
                "processor: proc": "processor: proc\n      images_within: /of/nodes",
            },
        ),
    ],
)
def test_missing_images_that_may_be_lost_made_or_on_nodes_are_noted(
    notes: Notes, tmp_path: Path, names: tuple[str, ...], changes: dict[str, str]
) -> None:
    (tmp_path / "a.jpg").write_bytes(PICTURE)
    write(tmp_path, *names)
    text = SPEC.format(name="m.jsonl")
    for old, new in changes.items():
        text = text.replace(old, new)
    assert [note for note in notes(text) if re.search(r"b\.jpg (means|does not exist here)", note)]


def test_images_of_a_table_that_is_a_folder_are_in_that_folder(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"image": ["b.jpg"], "text": ["b"]}), tmp_path / "rows/0.parquet")
    (line,) = check(SPEC.format(name="rows"))
    assert "its image does not exist; b.jpg means rows/b.jpg" in line
    (tmp_path / "rows/b.jpg").write_bytes(PICTURE)
    assert check(SPEC.format(name="rows")) == []


def test_an_image_whose_name_is_written_in_another_normal_form_exists(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "caf\u00e9.jpg").write_bytes(PICTURE)
    write(tmp_path, "cafe\u0301.jpg")
    assert check(SPEC.format(name="m.jsonl")) == []


@pytest.mark.parametrize(("run", "is_error"), [("recipes:models", True), ("my_images:make", False)])
def test_missing_images_after_a_stage_that_downloads_models_are_refused(
    check: Check, tmp_path: Path, run: str, is_error: bool
) -> None:
    write(tmp_path, "b.jpg")
    for module in ("recipes", "my_images"):
        (tmp_path / f"{module}.py").write_text("def models(config, context): ...\nmake = models\n")
    text = SPEC.format(name="m.jsonl").replace(
        "  p:", f'  models: {{run: "{run}"}}\n  p:\n    after: models'
    )
    assert [("its image does not exist" in line) for line in check(text)] == [True] * is_error


def test_each_reason_why_rows_cannot_be_used_has_a_line_with_the_first_row(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("words")
    rows = ["a.jpg,x"] * 5 + [
        "a.jpg,x,y,z",
        "a.jpg",
        "a.jpg,x,y,z",
        "b.txt,x",
        "b.jpg,x",
        "c.jpg,x",
    ]
    (tmp_path / "m.csv").write_text("image_path,text\n" + "\n".join(rows))
    (line,) = check(SPEC.format(name="m.csv"))
    head, *reasons = line.split("\n  ")
    assert head.endswith(
        "m.csv: 6 of 11 rows cannot be used. The stage fails, because max_reject_share: 0.01 "
        "allows 1. Raise max_reject_share, or fix or remove these rows:"
    )
    assert reasons == [
        (
            "m.csv:7: 4 cells, the first line names 2 columns; put a text that has commas in "
            'double quotes: "a dog, running" (the first of 2 rows)'
        ),
        "m.csv:11: b.jpg does not exist (the first of 2 rows)",
        "m.csv:8: 1 cell, the first line names 2 columns",
        "m.csv:10: b.txt is not an image file",
    ]
