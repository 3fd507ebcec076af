"""Notes on manifests: keys that are not read, and splits that are mixed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.slurm_jobs.spec.checks.data.checked_manifests import (
    ANSWER,
    CHAT,
    QUESTION,
    TEXT_SPEC,
    VIDEO,
    write,
    write_in_each_format,
)
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Notes


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def test_rows_that_cannot_be_used_and_keys_that_are_not_read_are_noted(
    notes: Notes, tmp_path: Path
) -> None:
    ignored, bad = sorted(
        notes(write(tmp_path, [CHAT, VIDEO, {**CHAT, "mood": "glad"}])),
        key=lambda note: "cannot be used" in note,
    )
    assert "1 of 3 rows cannot be used:\n  m.jsonl:2: `video` holds" in bad
    assert ignored.endswith("keys that are not read: `mood`")
    assert notes(write(tmp_path, [CHAT, {**CHAT, "source": "coco"}])) == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([{"split": "train"}, {"split": "test"}], "split has the values train, test: all rows are"),
        ([{"Subset": "train2017"}, {"Subset": "val2017"}], "Subset has the values train2017, val"),
        ([{"Usage": "Training"}, {"Usage": "PublicTest"}], "Usage has the values Training, Publi"),
        ([{"set": "coco_test"}], "set has the values coco_test: all rows are trained"),
        ([{"is_test": False}, {"is_test": True}], "is_test has the values False, True: all rows"),
        ([{"is_val": 1}, {"is_val": 0}], "is_val has the values 1, 0: all rows are trained"),
        ([{"split": "train"}] * 1000, "the values train in the first 1,000 rows, and rows of oth"),
        ([{"split": "train", "text": "b" * 2**18}] * 9, "values train in the first 7 rows, and ro"),
        ([{"image": "a/train/1.png"}, {"image": "a\\test\\2.png"}], "several splits, train, test"),
        ([{"split": "train"}, {"split": "train"}], ""),
        ([{"split": "a"}, {"subset": "textvqa"}, {"category": "test"}], ""),
        ([{"image": "train/test_tube.png"}, {"image": "train/test.png"}], ""),
    ],
)
def test_rows_of_a_held_out_split_are_noted(
    notes: Notes, tmp_path: Path, keys: list[dict[str, Any]], said: str
) -> None:
    spec = write(tmp_path, [{"image": "a.png", "text": "b", **row} for row in keys])
    found = [note for note in notes(spec) if "splits" in note or "all rows are" in note]
    assert [said in note for note in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("file", "named", "is_noted"),
    [
        ("data/test-00000-of-00001.parquet", "hub", True),
        ("validation.parquet", "hub", True),
        ("data/test-00000-of-00001.parquet", "hub/test", False),  # the user says so
        ("data/train-00000-of-00001.parquet", "hub", False),
        ("rows.parquet", "hub", False),
    ],
)
def test_a_folder_of_held_out_rows_alone_is_noted(
    notes: Notes, tmp_path: Path, file: str, named: str, is_noted: bool
) -> None:
    (tmp_path / "hub" / file).parent.mkdir(parents=True)
    table = pa.Table.from_pylist([{"image": "a.png", "text": "a"}])
    pq.write_table(table, tmp_path / "hub" / file)
    found = "".join(notes(SPEC.format(name=named)))
    assert ("which is usually held out: all its rows are trained" in found) == is_noted


def test_files_of_a_table_that_are_missing_are_noted(notes: Notes, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    table = pa.Table.from_pylist([{"image": "a.png", "text": "a"}])
    for place in (0, 2):
        pq.write_table(table, tmp_path / f"hub/train-{place:05}-of-00003.parquet")
    found = "".join(notes(SPEC.format(name="hub")))
    assert "its files are numbered as 3, and 1 of them are missing" in found


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.json"])
def test_a_column_of_splits_is_noted_in_each_format_unless_it_is_ignored(
    notes: Notes, tmp_path: Path, name: str
) -> None:
    row = {"image": "a.png", "text": "a"}
    write_in_each_format(tmp_path, [{**row, "split": split} for split in ("train", "validation")])
    said = "split has the values train, validation: all rows are trained"
    assert said in "".join(notes(SPEC.format(name=name)))
    ignored = SPEC.format(name=name) + "      columns: {ignore: [split]}\n"
    assert said not in "".join(notes(ignored))


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.jsonl"])
def test_a_name_to_ignore_that_no_column_has_is_noted(
    notes: Notes, tmp_path: Path, name: str
) -> None:
    write_in_each_format(tmp_path, [{"image": "a.png", "text": "a", "notes": "b"}])
    for ignored, is_noted in (("notess", True), ("notes", False)):
        found = "".join(notes(SPEC.format(name=name) + f"      columns: {{ignore: [{ignored}]}}\n"))
        assert ("names `notess`" in found and "did you mean `notes`?" in found) == is_noted


def test_a_key_of_turns_may_be_ignored_without_a_note(notes: Notes, tmp_path: Path) -> None:
    spec = write(tmp_path, [{"messages": [{**QUESTION, "mood": "sad"}, ANSWER]}])
    assert notes(spec + "      columns: {ignore: [mood]}\n") == []


def test_rows_with_several_answers_are_noted_with_the_way_to_train_all(
    notes: Notes, tmp_path: Path
) -> None:
    asked = {"question": "What is it?", "answers": ["cat", "cat"]}
    found = notes(write(tmp_path, [asked, {**asked, "answers": ["cat", "dog"]}]))
    assert "in 1 of the first 2 rows, beginning with m.jsonl:2, several answers are listed" in (
        "".join(found)
    )
    assert found[0].endswith("to learn all of them, write a row for each")


def test_a_key_of_pairs_in_a_table_may_be_ignored_without_a_note(
    notes: Notes, tmp_path: Path
) -> None:
    rows = [{"conversation": [{"human": "?", "assistant": "!", "mood": "sad"}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    spec = TEXT_SPEC.format(name="m.parquet")
    assert notes(spec + "      columns: {ignore: [mood]}\n") == []
