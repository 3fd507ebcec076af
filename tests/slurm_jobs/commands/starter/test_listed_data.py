"""The data set that a user names in a list of another tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.listed_data import listed_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]")
    sets = {
        "first": {"file_name": "a.json"},
        "second": {"file_name": "b.json"},
        "far": {"hf_hub_url": "x/y"},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps(sets))
    return tmp_path


@pytest.mark.parametrize("start", ["", "/dataset_info.json"])
def test_a_data_set_is_named_behind_the_folder_or_the_list(data: Path, start: str) -> None:
    chosen = listed_data(Path(f"{data}{start}::second"))
    assert chosen is not None
    assert chosen.manifest == data / "b.json"


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("", r"lists 3 data sets; name one, .*or mix all, .*these can be read: first, second"),
        ("::secnd", "no data set `secnd`; did you mean `second`"),
        ("::far", "data set `far` cannot be read: it is on a hub"),
    ],
)
def test_a_name_that_is_missing_wrong_or_of_no_file_is_refused(
    data: Path, end: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        listed_data(Path(f"{data}{end}"))


def test_the_only_data_set_that_can_be_read_needs_no_name(data: Path) -> None:
    (data / "b.json").unlink()
    chosen = listed_data(data)
    assert chosen is not None
    assert chosen.name == "first"


def test_a_path_that_is_no_list_means_itself(data: Path) -> None:
    assert listed_data(data / "a.json") is None
    assert listed_data(data / "gone.json") is None
