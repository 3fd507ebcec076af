"""Lists of data sets of LLaMA-Factory, InternVL and Automodel: files, folders and columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.manifests.containers.data_set_lists import ListedSet, read_data_sets
from slurm_jobs.formats.manifests.containers.json_container import NoContainerError, find_container


def _only(folder: Path, values: dict[str, Any]) -> ListedSet:
    (folder / "list.json").write_text(json.dumps({"mine": values}))
    data_sets = read_data_sets(folder / "list.json")
    assert data_sets is not None
    (one,) = data_sets
    return one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of rows, one in a subfolder, and a folder of images."""
    for name in ("rows.json", "sub/rows.jsonl", "pics/a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ({"file_name": "rows.json"}, {}),
        (  # rows may also have `conversations` and `image`, which the tool does not read
            {"file_name": "rows.json", "columns": {"messages": "messages", "images": "images"}},
            {"messages": "messages", "image": "images"},
        ),
        ({"file_name": "rows.json", "columns": {"messages": "chat"}}, {"messages": "chat"}),
        (
            {"file_name": "rows.json", "columns": {"prompt": "ask", "response": "reply"}},
            {"prompt": "ask", "text": "reply"},
        ),
        ({"file_name": "rows.json", "columns": {"query": "input", "history": "history"}}, {}),
        (
            {
                "file_name": "rows.json",
                "formatting": "sharegpt",
                "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user"},
            },
            {},
        ),
    ],
)
def test_all_columns_that_the_list_names_are_named(
    folder: Path, values: dict[str, Any], columns: dict[str, str]
) -> None:
    one = _only(folder, values)
    assert (one.manifest, one.problem) == (folder / "rows.json", "")
    assert one.columns == columns


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"hf_hub_url": "a/b"}, "it is on a hub"),
        ({"file_name": "gone.json"}, "gone.json does not exist"),
        ({"file_name": "rows.json", "columns": {"videos": "videos"}}, "its column `videos`"),
        ({"file_name": "rows.json", "columns": {"chosen": "good"}}, "its column `chosen`"),
        ({"file_name": "rows.json", "columns": {"query": "extra"}}, "its column `query` (extra)"),
        ({"file_name": "rows.json", "tags": {"user_tag": "Q"}}, "its tag `user_tag` is Q"),
        ({"file_name": "rows.json", "ranking": True}, "its key `ranking` is not read"),
        ({"annotation": "rows.json", "root": "gone"}, "its folder gone does not exist"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, values: dict[str, Any], problem: str) -> None:
    assert problem in _only(folder, values).problem


def test_folders_of_images_and_shares_are_those_of_the_list(folder: Path) -> None:
    internvl = _only(folder, {"annotation": "sub/rows.jsonl", "root": "pics", "repeat_time": 0.5})
    assert internvl.manifest == folder / "sub/rows.jsonl"
    assert internvl.image_root == folder / "pics"
    assert internvl.proportion == {"repeat": 0.5}
    factory = _only(folder, {"file_name": "sub/rows.jsonl", "num_samples": 7})
    assert (factory.image_root, factory.proportion) == (folder, {"num_samples": 7})
    automodel = _only(folder, {"file_name": "rows.json", "media_dir": "pics", "sample_ratio": 1})
    assert (automodel.image_root, automodel.proportion) == (folder / "pics", {})


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"a": 1}', '{"a": {"images": []}}', ""])
def test_other_files_are_no_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert read_data_sets(tmp_path / "m.json") is None


def test_a_list_as_a_manifest_is_refused_with_the_way_to_name_a_set(folder: Path) -> None:
    _only(folder, {"file_name": "rows.json"})
    with pytest.raises(NoContainerError, match=r"init --data .*list\.json::NAME"):
        find_container(folder / "list.json")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"columns": ["messages"]}, "its `columns` is ['messages'], and has to map keys to names"),
        (
            {"columns": {"response": 3}},
            "its `columns` is {'response': 3}, and has to map keys to names",
        ),
        ({"tags": ["x"]}, "its `tags` is ['x'], and has to map keys to names"),
        ({"columns": {"system": None}}, ""),
        ({"columns": None, "tags": None}, ""),
    ],
)
def test_columns_and_tags_of_other_forms_are_the_problem_of_their_data_set(
    folder: Path, values: dict[str, Any], problem: str
) -> None:
    assert _only(folder, {"file_name": "rows.json", **values}).problem == problem


def test_rows_by_their_ids_are_no_list_of_data_sets(folder: Path) -> None:
    rows = {"17": {"file_name": "pics/a.jpg", "caption": "a cat"}}
    (folder / "rows.json").write_text(json.dumps(rows))
    assert read_data_sets(folder / "rows.json") is None
