"""What `verify` finds in data sets that were broken on purpose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.disk_format.index import format_key
from pipeline.tools import verify as verify_module
from pipeline.tools.shard_check import ShardProblem
from pipeline.tools.verify import run, slices_to_redo
from tests.pipeline.build import (
    preprocess_with_3_bad_rows_of_40,
    run_consolidate,
    run_preprocess,
)
from tests.pipeline.consolidate.shared_pictures import SHARE, random_rows, write_rows
from tests.pipeline.tools.verifying import flip, problems_of, verify


@pytest.mark.parametrize("image_format", ["png", "jpeg", "raw"])
def test_an_intact_data_set_has_no_problem_and_all_of_it_is_read(make_dataset, image_format):
    folder = make_dataset(23, num_shards=4, image_format=image_format)
    info, said = read_dataset_info(folder), []
    arguments = {"folder": str(folder), "num_threads": 3, "num_tasks": 2}
    result = run(arguments, lambda *words: said.append(words))
    assert result["problems"] == result["slices"] == []
    assert (result["num_samples"], result["num_shards"]) == (23, 4)
    assert max(said) == (info.num_bytes, info.num_bytes, "bytes")


def test_a_missing_and_a_foreign_shard_are_reported(folder):
    (folder / "shards" / "shard-000002.tar").rename(folder / "shards" / "shard-000009.tar")
    assert problems_of(folder) == [
        ("shards/shard-000009.tar", None, "no shard of this data set: dataset.json names 3 others"),
        ("shards/shard-000002.tar", None, "missing"),
    ]


@pytest.mark.parametrize("name", ["dataset.json", "index.arrow", "rejects.jsonl"])
def test_a_missing_file_is_reported(folder, name):
    (folder / name).unlink()
    ((file, _, message),) = problems_of(folder)
    assert file == name
    assert "missing" in message or "No such file" in message


@pytest.mark.parametrize("name", ["manifest.jsonl", "pictures.tar"])
def test_a_changed_file_of_held_out_rows_is_reported(tmp_path, processor_dir, name):
    config = {
        "manifest": str(write_rows(tmp_path / "source", random_rows(1))),
        "processor": str(processor_dir),
        "held_out": {"share": SHARE},
    }
    _, parts_dir = run_preprocess(tmp_path / "prep", config)
    _, folder = run_consolidate(tmp_path / "set", parts_dir)
    assert problems_of(folder) == []
    flip(folder / "held_out" / name, 30)
    ((file, _, message),) = problems_of(folder)
    assert file == f"held_out/{name}"
    assert message.startswith("xxh3 ")


def test_the_index_of_another_data_set_is_reported_and_shards_are_compared(folder, make_dataset):
    shutil.copy(make_dataset(23, num_shards=3, seed=9) / "index.arrow", folder)
    flip(folder / "shards" / "shard-000000.tar", 700)
    found = problems_of(folder)
    assert {file for file, _, _ in found} == {"index.arrow", "shards/shard-000000.tar"}
    assert any("the column key does not match its checksum" in text for _, _, text in found)
    assert found[-1][2].startswith("xxh3 ")


def test_a_changed_or_missing_processor_is_reported(folder):
    (folder / "processor" / "tokenizer_config.json").write_text("{}")
    ((file, _, message),) = problems_of(folder)
    assert file == "processor"
    assert "expected xxh3" in message
    shutil.rmtree(folder / "processor")
    assert problems_of(folder)[0][2].startswith("missing, expected xxh3")


def test_a_wrong_number_of_rejects_is_reported(folder):
    (folder / "rejects.jsonl").write_text("{}\n")
    assert problems_of(folder) == [("rejects.jsonl", None, "1 rejects, expected 0 rejects")]


@pytest.fixture
def with_rejects(tmp_path: Path, processor_dir: Path) -> Path:
    """A data set of 37 samples and 3 rejects, in 2 shards, made by 2 tasks."""
    parts = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 2, max_reject_share=0.5)
    return Path(run_consolidate(tmp_path / "rejects", parts, 2, num_shards=2)[1])


def test_a_changed_list_of_rejects_is_reported(with_rejects):
    path = with_rejects / "rejects.jsonl"
    assert problems_of(with_rejects) == []
    flip(path, 10)
    ((file, key, message),) = problems_of(with_rejects)
    assert (file, key) == ("rejects.jsonl", None)
    assert message.startswith("xxh3 ")
    assert message.endswith(f"expected {read_dataset_info(with_rejects).rejects_xxh3}")
    path.write_bytes(b"{}\n" * 3)
    assert problems_of(with_rejects)[0][0] == "rejects.jsonl"
    path.write_bytes(b"{}\n" * 2)
    assert problems_of(with_rejects)[0][2] == "2 rejects, expected 3 rejects"


def test_older_data_set_without_that_checksum_is_compared_by_its_counts(with_rejects):
    path = with_rejects / "dataset.json"
    values = json.loads(path.read_text())
    del values["rejects_xxh3"]
    path.write_text(json.dumps(values))
    assert read_dataset_info(with_rejects).fingerprint == values["fingerprint"]
    assert problems_of(with_rejects) == []
    (with_rejects / "rejects.jsonl").write_bytes(b"")
    assert problems_of(with_rejects)[0][2] == "0 rejects, expected 3 rejects"


@pytest.mark.parametrize("where", ["shards/more", "processor/additional_chat_templates"])
def test_a_foreign_folder_is_reported_and_makes_no_slice_run_again(folder, where):
    (folder / where).mkdir()
    shutil.copy(folder / "shards" / "shard-000000.tar", folder / where)
    found = verify(folder)
    assert [(p["file"], p["is_foreign"]) for p in found["problems"]] == [(where, True)]
    assert "remove it" in found["problems"][0]["message"]
    assert found["slices"] == []


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("num_tokens", r"num_tokens \d+, but the index says \d+"),
        ("num_supervised_tokens", r"num_supervised_tokens \d+, but the index says \d+"),
        ("num_images", "num_images 1, but the index says 2"),
        ("key", r"it has a member 0000000\d\d\.tokens\.npy, but the index says"),
    ],
)
def test_a_sample_that_differs_from_its_row_is_reported(folder, monkeypatch, column, words):
    """An index whose checksums are right and whose counts are wrong: a mistake of ours."""
    import re

    real = verify_module.open_index

    def with_a_wrong_row(*args: Any, **options: Any) -> Any:
        from dataclasses import replace

        index = real(*args, **options)
        values = getattr(index, column).copy()
        values[5] += 1
        index = replace(index, **{column: values})
        index._checked.update(verify_module.INDEX_TYPES)
        return index

    monkeypatch.setattr(verify_module, "open_index", with_a_wrong_row)
    key = format_key(int(open_dataset(folder).index.key[5]) + (column == "key"))
    messages = {of: message for _, of, message in problems_of(folder)}
    assert re.search(words, messages[key])
    if column in {"num_tokens", "num_images"}:
        assert "add up to" in messages[None]
    if column == "key":
        assert "keys come more than once" in messages[None]


def test_slices_to_redo_are_those_that_wrote_what_is_wrong(dataset_dir):
    info = read_dataset_info(dataset_dir)

    def slices(*shards: int | None, num_tasks: int = 2) -> list[int]:
        problems = [ShardProblem(file="f", message="m", shard=shard) for shard in shards]
        return slices_to_redo(problems, info, num_tasks)

    assert slices() == []
    assert slices(0) == [0]
    assert slices(2, 1) == [1]
    assert slices(0, 2) == [0, 1]
    assert slices(0, 2, num_tasks=7) == [2, 6]
    assert slices(None) == [0]
    assert slices_to_redo([ShardProblem(file="dataset.json", message="m")], None, 3) == [0, 1, 2]
