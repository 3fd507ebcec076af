"""Lists that name the pictures of a folder, and those that hold something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.commands.starter.picture_lists import lists_of_pictures
from tests.slurm_jobs.commands.starter.test_image_folder import write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", '{"question": "q", "answer": "a", "image": "im/ISIC_0.png"}'),
        ("llava.json", json.dumps([{"id": 1, "image": "elsewhere/12.png", "conversations": []}])),
        ("metadata.csv", "lesion_id,image_id,dx\nHAM_1,ISIC_0,nv\n"),
        ("labels.tsv", "id\tlabel\n12\tfrog\n13\tship\n"),
        ("windows.csv", 'file,label\n"D:\\im\\12.png",frog\n'),
        ("escaped.json", json.dumps({"image": "caf\u00e9.png"})),
        ("annotations/coco.json", '{"images": [{"file_name": "12.png", "width": 64}]}'),
        ("cut.json", '[{"image": "12.png"}, ' + '{"image": "0.png"}, ' * 100_000),
    ],
)
def test_a_list_names_pictures_by_path_name_or_stem(tmp_path: Path, name: str, text: str) -> None:
    images = [tmp_path / "a" / stem for stem in ("ISIC_0.png", "12.png", "13.png", "caf\u00e9.png")]
    write(tmp_path, **{name: text})
    assert lists_of_pictures([tmp_path / name], images) == [tmp_path / name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.csv", "index,name\n0,cat\n1,dog\n"),
        ("classes.json", '["cat", "dog"]'),
        ("config.json", '{"size": 7, "name": "tabby", "std": [1, 2]}'),
        ("urls.csv", "url\nhttps://example.org/other.png\n"),
        ("list.xml", "<filename>7.png</filename>"),
        ("damaged.parquet", "7.png"),
        ("cat/7.json", '{"imagePath": "7.png", "shapes": []}'),
    ],
)
def test_a_list_of_classes_or_a_sidecar_names_no_pictures(
    tmp_path: Path, name: str, text: str
) -> None:
    images = [tmp_path / folder / f"{n}.png" for folder in ("cat", "dog") for n in range(10)]
    images += [tmp_path / "cat" / "tabby.png", tmp_path / "cat" / "cat.png"]
    write(tmp_path, **{name: text})
    assert lists_of_pictures([tmp_path / name, tmp_path / "gone.csv"], images) == []


def test_the_rows_of_a_table_name_pictures(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"picture": ["im/1.png", None], "label": [1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "labels.parquet")
    lists = [tmp_path / "labels.parquet"]
    assert lists_of_pictures(lists, [tmp_path / "im" / "1.png"]) == lists
    assert lists_of_pictures(lists, [tmp_path / "im" / "2.png"]) == []


def test_the_list_for_training_comes_first(tmp_path: Path) -> None:
    lists = [tmp_path / name for name in ("a_test.csv", "a_train.csv", "all.csv")]
    write(tmp_path, **{path.name: "1.png" for path in lists})
    found = lists_of_pictures(lists, [tmp_path / "im" / "1.png"])
    assert [path.name for path in found] == ["a_train.csv", "a_test.csv", "all.csv"]
