"""`dataset.json`, and what is said of one that is not what consolidate wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.disk_format.dataset_info import dataset_info_to_json, read_dataset_info
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.dataset_folder import INFO_NAME


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A folder of a test's own with the `dataset.json` of a real data set."""
    shutil.copy(dataset_dir / INFO_NAME, tmp_path)
    return tmp_path


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def test_what_was_written_is_read_back(folder: Path) -> None:
    info = read_dataset_info(folder)
    assert json.loads((folder / INFO_NAME).read_text()) == json.loads(
        json.dumps(dataset_info_to_json(info))
    )


def test_missing_file_says_that_the_data_set_is_not_finished(tmp_path: Path) -> None:
    with pytest.raises(
        StageError, match=r"dataset\.json: missing, so the data set is not finished"
    ):
        read_dataset_info(tmp_path)


@pytest.fixture
def as_other_user() -> Iterator[None]:
    """Root may read everything, so it becomes somebody else for the test."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    yield
    os.seteuid(own)


def test_file_that_this_user_may_not_read_says_who_gives_the_right(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    (folder / INFO_NAME).chmod(0)
    request.getfixturevalue("as_other_user")
    with pytest.raises(StageError, match=r"this user may not read it; .* chmod -R a\+rX "):
        read_dataset_info(folder)


@pytest.mark.parametrize("text", ["", "{", '{"format": "slurm-jobs-dataset-2"', "\xff\x00"])
def test_a_file_that_is_no_json_is_reported_as_damaged(folder: Path, text: str) -> None:
    (folder / INFO_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(StageError, match=r"dataset\.json: damaged, no .*; run consolidate again"):
        read_dataset_info(folder)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "{}", '{"format": "other"}'])
def test_file_of_another_format_is_refused(folder: Path, text: str) -> None:
    (folder / INFO_NAME).write_text(text)
    with pytest.raises(StageError, match=r"json: format .*; run preprocess and consolidate again"):
        read_dataset_info(folder)


@pytest.mark.parametrize("name", ["shards", "image_mean", "num_samples", "index"])
@pytest.mark.parametrize("how", ["missing", "null"])
def test_file_with_a_field_missing_or_wrong_is_refused(folder: Path, name: str, how: str) -> None:
    values = json.loads((folder / INFO_NAME).read_text())
    changed = without(values, name) if how == "missing" else {**values, name: None}
    (folder / INFO_NAME).write_text(json.dumps(changed))
    with pytest.raises(StageError, match=r"dataset\.json: .*; run consolidate again"):
        read_dataset_info(folder)


@pytest.mark.parametrize("shards", [[1], [{}], [{"name": "shard-000000.tar"}], {"a": 1}, 3])
def test_invalid_shards_are_reported_as_damage(folder: Path, shards: object) -> None:
    values = json.loads((folder / INFO_NAME).read_text())
    (folder / INFO_NAME).write_text(json.dumps({**values, "shards": shards}))
    with pytest.raises(StageError, match=r"dataset\.json: damaged \(.*; run consolidate again"):
        read_dataset_info(folder)


def test_file_without_its_fingerprint_or_with_another_value_is_refused(folder: Path) -> None:
    values = json.loads((folder / INFO_NAME).read_text())
    for changed in (without(values, "fingerprint"), {**values, "seed": values["seed"] + 1}):
        (folder / INFO_NAME).write_text(json.dumps(changed))
        with pytest.raises(StageError, match="does not match its fingerprint"):
            read_dataset_info(folder)


@pytest.mark.parametrize("name", ["../../elsewhere.tar", "/etc/passwd", "shard-000001.tar", ""])
def test_a_shard_whose_name_consolidate_would_not_write_is_refused(folder: Path, name: str) -> None:
    values = json.loads((folder / INFO_NAME).read_text())
    values["shards"][0]["name"] = name
    (folder / INFO_NAME).write_text(json.dumps(values))
    with pytest.raises(StageError, match=r"shard 0 is called .*, not shard-000000\.tar"):
        read_dataset_info(folder)
