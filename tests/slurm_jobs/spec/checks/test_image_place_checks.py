"""Images that are missing, or outside of their folder, are reported before anything is queued."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.operations.load import load
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor

Check = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def messages(*images: str) -> dict[str, object]:
    content = [{"type": "image", "path": name} for name in images]
    question = {"role": "user", "content": [*content, {"type": "text", "text": "?"}]}
    return {"messages": [question, {"role": "assistant", "content": "!"}]}


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
def test_the_first_image_elsewhere_and_the_key_that_lets_it_in_are_told(
    check: Check, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(ROWS[name])
    assert check(SPEC.format(name=name)) == [
        (
            f"7:17: stages.p.config.manifest: {name} names the image /pool/cats/a.jpg, "
            f"which lies outside of {tmp_path}; if this list may bring such files into the data "
            "set, set `images_within` beside it, to a folder that holds them all; those of the "
            "first rows lie in /pool"
        )
    ]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("folder", ["/pool", "/elsewhere/on/nodes", "."])
def test_where_the_spec_says_which_are_let_in_the_rest_is_left_to_the_job(
    check: Check, tmp_path: Path, name: str, folder: str
) -> None:
    (tmp_path / name).write_text(ROWS[name])
    assert check(SPEC.format(name=name) + f"      images_within: {folder}\n") == []


def test_a_path_that_climbs_out_is_found_and_one_that_comes_back_is_not(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "lists").mkdir()
    manifest = tmp_path / "lists/m.jsonl"
    manifest.write_text(json.dumps(messages("../lists/a.jpg")))
    assert check(SPEC.format(name="lists/m.jsonl")) == []
    manifest.write_text(json.dumps(messages("../images/a.jpg")))
    [problem] = check(SPEC.format(name="lists/m.jsonl"))
    assert problem.endswith("lie in images")  # the fixture leaves its folder out


def test_a_member_of_an_archive_is_where_its_archive_is(check: Check, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("photos.tar::../../a.jpg")))
    assert check(SPEC.format(name="m.jsonl")) == []
    (tmp_path / "m.jsonl").write_text(json.dumps(messages("/pool/photos.tar::a.jpg")))
    assert check(SPEC.format(name="m.jsonl"))[0].endswith("lie in /pool")


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
        (("a.jpg", "b.jpg"), "none of 2 images exists; a.jpg means"),
        (("a.jpg",), "its image does not exist; a.jpg means"),
        (("photos.tar::a.jpg",), "its image does not exist; photos.tar::a.jpg means"),
        (("a.jpg", "there.jpg"), ""),
    ],
)
def test_a_manifest_whose_images_are_all_missing_is_noted(
    tmp_path: Path, names: tuple[str, ...], missing: str
) -> None:
    (tmp_path / "there.jpg").touch()
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps(messages(name)) for name in names))
    (tmp_path / "spec.yaml").write_text(SPEC.format(name="m.jsonl"))
    notes = [str(note) for note in load(tmp_path / "spec.yaml").notes]
    assert [missing in note for note in notes if "exist" in note] == [True] * bool(missing)
