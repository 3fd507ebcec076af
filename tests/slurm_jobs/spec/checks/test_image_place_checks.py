"""Images outside of the folder that they must lie in are told before anything is queued."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: preprocess
    config:
      manifest: {name}
      processor: proc
"""


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("tokenizer", "preprocessor_config", "processor_config"):
        (tmp_path / "proc" / f"{name}.json").write_text("{}")


def messages(*images: str) -> dict[str, object]:
    content = [{"type": "image", "path": name} for name in images]
    return {"messages": [{"role": "user", "content": [*content, {"type": "text", "text": "?"}]}]}


ROWS = {
    "m.csv": "image_path,text\nin.jpg,words\n/pool/cats/a.jpg,words\n/pool/dogs/b.jpg,words\n",
    "m.jsonl": "\n".join(
        json.dumps(row)
        for row in (
            messages("/pool/cats/a.jpg"),
            {"conversations": [], "image": "/pool/dogs/b.jpg"},
            {"messages": [], "images": [{"path": "/pool/dogs/c.jpg"}]},
            {"messages": "no list"},
        )
    ),
    "m.json": json.dumps([{"conversations": [], "image": "/pool/cats/a.jpg"}, messages("/pool/b")]),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_first_image_elsewhere_and_the_key_that_lets_it_in_are_told(
    check: Check, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(ROWS[name])
    folder = "/" if name == "m.csv" else "/pool"  # the CSV has one beside it, too
    assert check(SPEC.format(name=name)) == [
        (
            f"7:17: stages.p.config.manifest: {name} names the image /pool/cats/a.jpg, "
            f"which lies outside of {tmp_path}; if this list may bring such "
            f"files into the data set, set `images_within: {folder}` beside it"
        )
    ]


@pytest.mark.parametrize("name", ROWS)
def test_what_the_spec_lets_in_is_no_problem(check: Check, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ROWS[name])
    assert check(SPEC.format(name=name) + "      images_within: /\n") == []


def test_a_path_that_climbs_out_is_found_and_one_that_comes_back_is_not(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "lists").mkdir()
    manifest = tmp_path / "lists/m.jsonl"
    manifest.write_text(json.dumps(messages("../lists/a.jpg")))
    assert check(SPEC.format(name="lists/m.jsonl")) == []
    manifest.write_text(json.dumps(messages("../images/a.jpg")))
    [problem] = check(SPEC.format(name="lists/m.jsonl"))
    assert "set `images_within: images` beside it" in problem  # the fixture leaves its folder out
    (tmp_path / "images").mkdir()
    spec = SPEC.format(name="lists/m.jsonl") + "      images_within: images\n"
    assert check(spec) == []


def test_a_member_of_an_archive_is_where_its_archive_is(check: Check, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("photos.tar::../../a.jpg")))
    assert check(SPEC.format(name="m.jsonl")) == []
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("/pool/photos.tar::a.jpg")))
    assert "`images_within: /pool`" in check(SPEC.format(name="m.jsonl"))[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [[{"role": 1}], 3, null], "images": [3, null, {}], "image": {}}',
        "{" * 5000,
        '{"image": "a.jpg"} trailing',
        '{"image": "' + "x" * 70_000,
        "\0",
    ],
)
def test_rows_that_cannot_be_understood_are_left_to_the_job(
    check: Check, tmp_path: Path, text: str
) -> None:
    (tmp_path / "m.jsonl").write_text('{"messages": []}\n' + text)
    assert check(SPEC.format(name="m.jsonl")) == []
