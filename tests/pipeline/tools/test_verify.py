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
from pipeline.tools import shard_check
from pipeline.tools import verify as verify_module
from pipeline.tools.shard_check import ShardProblem
from pipeline.tools.verify import run, slices_to_redo
from tests.pipeline.build import preprocess_with_3_bad_rows_of_40, run_consolidate


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of a data set of 23 samples in 3 shards, of a test's own."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "set"))


def verify(folder: Path, **arguments: Any) -> dict[str, Any]:
    values = {"folder": str(folder), "num_threads": 2, "num_tasks": 1, **arguments}
    return run(values, lambda _done, _total, _unit: None)


def problems_of(folder: Path) -> list[tuple[str, str | None, str]]:
    return [(p["file"], p["key"], p["message"]) for p in verify(folder)["problems"]]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("image_format", ["png", "jpeg", "raw"])
def test_an_intact_data_set_has_no_problem_and_all_of_it_is_read(make_dataset, image_format):
    folder = make_dataset(23, num_shards=4, image_format=image_format)
    info, said = read_dataset_info(folder), []
    arguments = {"folder": str(folder), "num_threads": 3, "num_tasks": 2}
    result = run(arguments, lambda *words: said.append(words))
    assert result["problems"] == result["slices"] == []
    assert (result["num_samples"], result["num_shards"]) == (23, 4)
    assert max(said) == (info.num_bytes, info.num_bytes, "bytes")


@pytest.mark.parametrize("number", [0, 11, 22])
def test_a_flipped_bit_is_reported_with_shard_and_key(folder, number):
    dataset = open_dataset(folder)
    shard, key = int(dataset.index.shard[number]), format_key(int(dataset.index.key[number]))
    name = f"shards/shard-{shard:06d}.tar"
    flip(folder / name, int(dataset.index.offset[number] + dataset.index.num_bytes[number]) - 600)
    found = problems_of(folder)
    assert [(file, of) for file, of, _ in found] == [(name, None), (name, key)]
    assert found[0][2].startswith("xxh3 ")
    assert found[1][2] == "its bytes do not match their checksum"


def test_a_flipped_bit_after_the_last_sample_is_reported(folder):
    flip(folder / "shards" / "shard-000001.tar", -3)
    ((file, key, message),) = problems_of(folder)
    assert (file, key) == ("shards/shard-000001.tar", None)
    assert message.startswith("xxh3 ")


def test_a_truncated_shard_is_reported_with_the_lost_samples(folder):
    index = open_dataset(folder).index
    path = folder / "shards" / "shard-000001.tar"
    in_shard = [number for number in range(23) if index.shard[number] == 1]
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(int(index.offset[in_shard[-2]]) + 10)
    found = problems_of(folder)
    assert found[0][2] == f"{int(index.offset[in_shard[-2]]) + 10} bytes, expected {size}"
    lost = [format_key(int(index.key[number])) for number in in_shard[-2:]]
    assert [key for _, key, _ in found[1:]] == lost
    assert all(message.startswith("cut short") for _, _, message in found[1:])


def test_problems_of_a_shard_above_a_limit_are_reported_as_a_number(folder, monkeypatch):
    """A set of which nothing is left must not fill the memory with what is missing of it."""
    monkeypatch.setattr(shard_check, "MOST_OF_A_SHARD", 2)
    (folder / "shards" / "shard-000001.tar").write_bytes(b"")
    keys = [key for _, key, _ in problems_of(folder)]
    assert [key is None for key in keys] == [True, False, False, True]
    words = f"{read_dataset_info(folder).shards[1].num_samples - 2} more of its samples"
    assert problems_of(folder)[-1][2].startswith(words)


def test_a_missing_and_a_foreign_shard_are_reported(folder):
    (folder / "shards" / "shard-000002.tar").rename(folder / "shards" / "shard-000009.tar")
    assert problems_of(folder) == [
        ("shards/shard-000009.tar", None, "no shard of this data set: dataset.json names 3 others"),
        ("shards/shard-000002.tar", None, "missing"),
    ]


def test_swapped_shards_are_reported_for_each_sample(folder):
    first, second = (folder / "shards" / f"shard-00000{i}.tar" for i in (1, 2))
    other = folder / "other"
    first.rename(other)
    second.rename(first)
    other.rename(second)
    keys = [key for _, key, _ in problems_of(folder) if key is not None]
    index = open_dataset(folder).index
    assert keys == [format_key(int(k)) for k, s in zip(index.key, index.shard, strict=True) if s]


@pytest.mark.parametrize("name", ["dataset.json", "index.arrow", "rejects.jsonl"])
def test_a_missing_file_is_reported(folder, name):
    (folder / name).unlink()
    ((file, _, message),) = problems_of(folder)
    assert file == name
    assert "missing" in message or "No such file" in message


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
