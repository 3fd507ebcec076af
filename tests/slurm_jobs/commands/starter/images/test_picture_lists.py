"""Lists that name the pictures of a folder, and those that hold something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.commands.starter.images.picture_lists import lists_of_pictures
from tests.slurm_jobs.commands.starter.images.test_image_folder import write

IMAGES = [f"im/{name}" for name in ("ISIC_0.png", "12.png", "caf\u00e9.PNG", "b/dog_1.jpg")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", "".join(f'{{"question": "q", "image": "{n}"}}\n' for n in IMAGES)),
        ("llava.json", json.dumps([{"id": 1, "image": f"elsewhere/{n}"} for n in IMAGES])),
        ("metadata.csv", "lesion_id,image_id,dx\nHAM_1,ISIC_0,nv\nHAM_2,12,nv\nHAM_3,dog_1,nv\n"),
        ("windows.csv", 'file,label\n"D:\\im\\12.png",a\nD:\\ISIC_0.png,b\nD:\\dog_1.jpg,c\n'),
        ("other_case.tsv", "isic_0.PNG\ta\n12.Png\tb\nCAF\u00c9.png\tc\n"),
        ("annotations/coco.json", json.dumps({"images": [{"file_name": n} for n in IMAGES]})),
        ("cut.json", json.dumps([*IMAGES, *["0.png"] * 100_000, "end"])[:-5]),
        ("12.json", json.dumps(IMAGES)),
    ],
)
def test_a_list_names_pictures_by_path_name_or_stem(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, **{name: text})
    images = [tmp_path / image for image in IMAGES]
    assert lists_of_pictures([tmp_path / name], images) == [tmp_path / name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.csv", "index,name\n0,cat\n1,dog\n"),
        ("classes.json", '["cat", "dog"]'),
        ("urls.csv", "url\nhttps://example.org/other.png\n"),
        ("list.xml", "".join(f"<filename>{n}.png</filename>" for n in range(12))),
        ("damaged.parquet", "7.png"),
        ("README.json", '{"cover": "cat/cat_0.png"}'),
        ("dataset_infos.json", '{"example": "dog_1", "next": "cat_2"}'),
        ("package.json", '{"name": "tabby", "size": 7}'),
        ("metrics.csv", "epoch,loss\n0,1.5\n1,1.2\n2,1.1\n3,1.0\n"),
        ("cat/cat_0.json", '{"imagePath": "cat_0.png", "next": "cat_1.png"}'),
        ("meta/cat/cat_0.json", '{"imagePath": "cat_0.png"}'),
    ],
)
def test_a_list_that_names_few_pictures_is_not_of_pictures(
    tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path, **{name: text})
    lists = [tmp_path / name, tmp_path / "gone.csv"]
    numbered = [tmp_path / ("cat" if n % 2 else "dog") / f"{n}.png" for n in range(12)]
    assert lists_of_pictures(lists, numbered) == []
    named = [tmp_path / folder / f"{folder}_{n}.png" for folder in ("cat", "dog") for n in range(6)]
    assert lists_of_pictures(lists, named) == []


def test_of_many_pictures_the_head_of_a_list_names_enough(tmp_path: Path) -> None:
    images = [tmp_path / "im" / f"a_{n}.png" for n in range(2_000)]
    lists = [tmp_path / "few.csv", tmp_path / "long_rows.jsonl"]
    few = "".join(f"a_{n}.png,a\n" for n in range(200))
    long_rows = "".join(
        f'{{"image": "a_{n}.png", "text": "{"long " * 700}"}}\n' for n in range(600)
    )
    write(tmp_path, **{"few.csv": few, "long_rows.jsonl": long_rows})
    assert lists_of_pictures(lists, images) == [lists[1]]


def test_a_list_is_read_before_the_sidecars_of_pictures(tmp_path: Path) -> None:
    images = [tmp_path / "cat" / f"cat_{n}.png" for n in range(60)]
    sidecars = [image.with_suffix(".json") for image in images]
    captions = tmp_path / "labels" / "captions.csv"
    write(tmp_path, **{f"cat/{path.name}": f'"{path.stem}"' for path in sidecars})
    write(tmp_path, **{"labels/captions.csv": "".join(f"{path.name},a\n" for path in images)})
    assert lists_of_pictures([*sidecars, captions], images) == [captions]


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_the_rows_of_a_table_name_pictures(tmp_path: Path, is_dictionary: bool) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pictures = pa.array(["im/1.png", None])
    rows = {"picture": pictures.dictionary_encode() if is_dictionary else pictures, "label": [1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "labels.parquet")
    lists = [tmp_path / "labels.parquet"]
    assert lists_of_pictures(lists, [tmp_path / "im" / "1.png"]) == lists
    assert lists_of_pictures(lists, [tmp_path / "im" / "2.png"]) == []


def test_a_table_with_text_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    offsets = pa.array([0, 2], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    pq.write_table(pa.table({"name": ["1.png"], "text": texts}), tmp_path / "labels.parquet")
    assert lists_of_pictures([tmp_path / "labels.parquet"], [tmp_path / "im" / "1.png"]) == []


def test_the_list_for_training_comes_first(tmp_path: Path) -> None:
    lists = [tmp_path / name for name in ("a_test.csv", "a_train.csv", "all.csv")]
    write(tmp_path, **{path.name: "1.png" for path in lists})
    ordered = lists_of_pictures(lists, [tmp_path / "im" / "1.png"])
    assert [path.name for path in ordered] == ["a_train.csv", "a_test.csv", "all.csv"]


def test_vqa_questions_name_pictures_by_number(tmp_path: Path) -> None:
    pictures = [tmp_path / "val2014" / f"COCO_val2014_{number:012d}.jpg" for number in (42, 43)]
    shared = {"data_subtype": "val2014"}
    questions = [{"image_id": 42, "question_id": 420, "question": "What is this?"}]
    answers = [{"image_id": 42, "question_id": 420, "multiple_choice_answer": "a cup"}]
    files = [tmp_path / name for name in ("v2_questions.json", "v2_annotations.json", "info.json")]
    files[0].write_text(json.dumps({**shared, "questions": questions}))
    files[1].write_text(json.dumps({**shared, "annotations": answers}))
    files[2].write_text(json.dumps({"info": {"year": 2014}}))
    assert lists_of_pictures(files, pictures) == sorted(files[:2])
