"""JSON objects whose lists are joined to rows: COCO's captions, VQA's questions and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.manifests.containers import json_container
from slurm_jobs.formats.manifests.containers.json_container import NoContainerError, find_container
from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row

COCO: dict[str, Any] = {
    "info": {"year": 2017},
    "images": [{"id": 7, "file_name": "b.jpg"}, {"id": 5, "file_name": "a.jpg"}, {"id": 9}],
    "annotations": [
        {"id": 1, "image_id": 5, "caption": "a cat"},
        {"id": 2, "image_id": 7, "caption": "a dog"},
        {"id": 3, "image_id": 5, "caption": "the cat"},
        {"id": 4, "image_id": 6, "caption": "of a picture that is not listed"},
    ],
}
QUESTIONS: dict[str, Any] = {
    "info": {},
    "data_subtype": "val2014",
    "questions": [
        {"question_id": 12, "image_id": 3, "question": "What?"},
        {"question_id": 11, "image_id": 4, "question": "Where?"},
    ],
}
ANSWERS: dict[str, Any] = {
    "info": {},
    "data_subtype": "val2014",
    "annotations": [
        {"question_id": 11, "multiple_choice_answer": "here", "answers": [{"answer": "there"}]},
        {"question_id": 12, "multiple_choice_answer": "a cat", "answers": []},
    ],
}


def _rows(path: Path) -> list[tuple[str, ...]]:
    """The picture, the question and the answer of each row, or its problem."""
    container = find_container(path)
    assert container is not None
    rows = []
    for number, value in enumerate(container.rows):
        row = read_row(RowOrigin(row=number, line=None, manifest=path), value, RowOptions())
        texts = [message.text for message in row.messages]
        rows.append((*row.image_paths, *texts) if not row.problem else (row.problem,))
    return rows


def _write(folder: Path, name: str, values: Any, indent: int | None = None) -> Path:
    (folder / name).write_text(json.dumps(values, indent=indent))
    return folder / name


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("first", ["info", "images", "annotations"])
def test_each_caption_is_a_row_with_its_picture(
    tmp_path: Path, first: str, indent: int | None
) -> None:
    values = {first: COCO[first], **COCO}
    rows = _rows(_write(tmp_path, "captions.json", values, indent))
    asked = "Describe the image."
    assert rows[:3] == [
        ("a.jpg", asked, "a cat"),
        ("b.jpg", asked, "a dog"),
        ("a.jpg", asked, "the cat"),
    ]
    assert "picture" in rows[3][0] or "image" in rows[3][0]  # rejected, not learned blind


def test_annotations_without_captions_are_refused_with_their_keys(tmp_path: Path) -> None:
    boxes = {**COCO, "annotations": [{"id": 1, "image_id": 5, "bbox": [1, 2, 3, 4]}]}
    with pytest.raises(NoContainerError, match=r"no `caption` \(their keys are id, image_id, bbox"):
        find_container(_write(tmp_path, "instances.json", boxes))


@pytest.mark.parametrize("named", ["q.json", "a.json"])
def test_questions_are_joined_with_the_answers_next_to_them(tmp_path: Path, named: str) -> None:
    _write(tmp_path, "q.json", QUESTIONS)
    _write(tmp_path, "a.json", ANSWERS)
    _write(tmp_path, "other.json", {**ANSWERS, "data_subtype": "train2014"})
    _write(tmp_path, "boxes.json", COCO)
    assert _rows(tmp_path / named) == [
        ("COCO_val2014_000000000003.jpg", "What?", "a cat"),
        ("COCO_val2014_000000000004.jpg", "Where?", "here"),
    ]


def test_the_most_frequent_of_ten_answers_is_learned_if_none_is_chosen(tmp_path: Path) -> None:
    given = [{"answer": word, "answer_id": place} for place, word in enumerate(["a dog", "a cat"])]
    cats = {"question_id": 12, "answers": [*given, {"answer": "a cat"}]}
    _write(tmp_path, "a.json", {**ANSWERS, "annotations": [cats]})
    path = _write(tmp_path, "q.json", QUESTIONS)
    assert _rows(path) == [
        ("COCO_val2014_000000000003.jpg", "What?", "a cat"),
        ("`answer` is empty",),  # no one has answered the second question
    ]
    container = find_container(path)
    assert container is not None
    origin = RowOrigin(row=0, line=None, manifest=path)
    assert "several_answers" in read_row(origin, container.rows[0], RowOptions()).notes


def test_text_that_is_not_utf_8_is_named_with_its_place(tmp_path: Path) -> None:
    text = json.dumps(QUESTIONS, ensure_ascii=False).replace("What?", "Où?")
    (tmp_path / "q.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(NoContainerError, match=r"not UTF-8 \(invalid .* at byte 103\)"):
        find_container(tmp_path / "q.json")


@pytest.mark.parametrize(("num_others", "words"), [(0, "no file with"), (2, "2 files with")])
def test_questions_without_their_one_file_of_answers_are_refused(
    tmp_path: Path, num_others: int, words: str
) -> None:
    for number in range(num_others):
        _write(tmp_path, f"a{number}.json", ANSWERS)
    with pytest.raises(NoContainerError, match=f"questions in VQA's format, and {words}"):
        find_container(_write(tmp_path, "q.json", QUESTIONS))


def test_long_json_lines_that_begin_like_a_container_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_container, "MAX_CONTAINER_BYTES", 300_000)
    row = json.dumps({"images": ["data:image/png;base64," + "A" * 200_000], "text": "x"})
    (tmp_path / "m.json").write_text(f"{row}\n{row}\n")
    assert find_container(tmp_path / "m.json") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.jsonl", '{"images": ["a.jpg"], "messages": []}\n'),
        ("m.json", '{"images": ["a.jpg"], "messages": []}\n{"images": ["b.jpg"]}\n'),
        ("m.json", '{"images": ["a.jpg"], "messages": []}'),
        ("m.json", '[{"image": "a.jpg", "text": "x"}]'),
        ("m.json", '{"info": '),
        ("m.json", ""),
        ("m.csv", "image,text\n"),
    ],
)
def test_rows_and_damaged_files_are_no_container(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert find_container(tmp_path / name) is None


def test_two_pictures_with_one_id_are_refused_as_in_joined_files(tmp_path: Path) -> None:
    images = [*COCO["images"], {"id": 5, "file_name": "other/a.jpg"}]
    path = _write(tmp_path, "c.json", {**COCO, "images": images})
    with pytest.raises(NoContainerError, match=r"a\.jpg and other/a\.jpg, have the id 5"):
        find_container(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_subtype": None}, "question 12 has the image_id 3, .*a `data_subtype`"),
        ({"data_type": "abstract_v002"}, "question 12 has the image_id 3, .*mscoco"),
        ({"questions": QUESTIONS["questions"] * 2}, "two of its questions have the id 12"),
    ],
)
def test_questions_whose_picture_or_answer_is_not_clear_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    subtype = changes.get("data_subtype", "val2014")
    _write(tmp_path, "a.json", {**ANSWERS, "data_subtype": subtype})
    path = _write(tmp_path, "q.json", {**QUESTIONS, **changes})
    with pytest.raises(NoContainerError, match=words):
        find_container(path)


@pytest.mark.parametrize(
    ("kept", "picture", "answer"),
    [(0, "COCO_val2014_000000000003.jpg", "a cat"), (1, "COCO_val2014_000000000004.jpg", "here")],
)
def test_a_part_of_the_questions_finds_the_answers_of_all(
    tmp_path: Path, kept: int, picture: str, answer: str
) -> None:
    _write(tmp_path, "a.json", ANSWERS)
    part = {**QUESTIONS, "questions": [QUESTIONS["questions"][kept]]}
    (row,) = _rows(_write(tmp_path, "q.json", part))
    assert (row[0], row[-1]) == (picture, answer)
