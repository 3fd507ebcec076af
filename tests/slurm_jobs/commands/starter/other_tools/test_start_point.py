"""Model, data and name that a file of another tool names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.other_tools.settings_file import read_training
from slurm_jobs.commands.starter.other_tools.start_point import StartPoint, run_name, start_point


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def started(text: str, name: str = "train.yaml") -> StartPoint:
    Path(name).write_text(text)
    return start_point(read_training(Path(name)), has_data=False)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a.json", "b.json", "v.json"):
        (folder / name).write_text("[]")
    sets = {
        "first": {"file_name": "a.json"},
        "second": {"file_name": "b.json"},
        "clips": {"file_name": "v.json", "columns": {"messages": "messages", "videos": "videos"}},
        "far": {"hf_hub_url": "some/set"},
    }
    (folder / "dataset_info.json").write_text(json.dumps(sets))
    return folder


@pytest.mark.parametrize(
    ("names", "chosen", "left_out"),
    [
        ("first", "first", ()),
        ("first, second", "first", ("second",)),
        ("far,second,first", "second", ("far", "first")),
        ("clips,second", "second", ("clips",)),
    ],
)
def test_the_first_data_set_that_is_here_is_trained_on(
    listed: Path, names: str, chosen: str, left_out: tuple[str, ...]
) -> None:
    start = started(f"model_name_or_path: a/b\ndataset: {names}\n")
    assert start.data == Path(f"{listed}::{chosen}")
    assert start.left_out == left_out


def test_data_are_searched_above_the_file_too(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = listed.parent / "examples" / "lora" / "train.yaml"
    file.parent.mkdir(parents=True)
    monkeypatch.chdir(file.parent)
    start = started("model_name_or_path: a/b\ndataset: first\n", str(file))
    assert start.data == Path(f"{listed}::first")


def test_data_of_a_hub_are_awaited_in_a_folder_and_found_there_later(listed: Path) -> None:
    text = "model_name_or_path: a/b\ndataset: far\n"
    start = started(text)
    assert (start.data, start.awaited) == (None, listed / "set")
    assert start.download == "hf download some/set --repo-type dataset --local-dir data/set"
    (listed / "set").mkdir()
    assert started(text).data == listed / "set"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("own/rows:sub#200", "modelscope download --dataset own/rows --local_dir data/rows"),
        ("HF::own/rows", "hf download own/rows --repo-type dataset --local-dir data/rows"),
    ],
)
def test_the_command_that_downloads_data_fits_the_hub(name: str, command: str) -> None:
    start = started(f"swift sft --model a/b --dataset '{name}'\n", "train.sh")
    assert start.download == command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_name_or_path: a/b\ndataset: clips\n", "data set clips cannot be read: .*videos"),
        ("model_name_or_path: a/b\n", "names no data set that can be read here: give one with"),
        ("base_model: odd\ndatasets: [{path: a/b}]\n", "odd is of type phi3, which cannot be tr"),
    ],
)
def test_data_and_models_that_cannot_be_trained_are_refused(
    listed: Path, text: str, message: str
) -> None:
    assert listed.is_dir()
    Path("odd").mkdir()
    Path("odd/config.json").write_text('{"model_type": "phi3"}')
    with pytest.raises(InputError, match=message):
        started(text)


def test_files_of_axolotl_and_swift_are_found_with_their_columns() -> None:
    Path("rows.jsonl").write_text("")
    start = started(
        "base_model: a/b\n"
        "datasets: [{path: json, data_files: [rows.jsonl], field_messages: talk}]\n"
        "test_datasets: [{path: rows.jsonl}]\n"
    )
    assert start.data == start.held_out == Path("rows.jsonl").absolute()
    assert start.columns == {"messages": "talk"}
    start = started("swift sft --model a/b --dataset rows.jsonl#50\n", "train.sh")
    assert start.data == Path("rows.jsonl").absolute()


def test_a_data_set_of_version_1_is_read_from_its_list() -> None:
    Path("rows.jsonl").write_text("")
    Path("sets.yaml").write_text("one: {path: rows.jsonl, source: local}\ntwo: {path: x/y}\n")
    start = started("model: a/b\ntrain_dataset: sets.yaml\n")
    assert start.data == Path("rows.jsonl").absolute()
    assert start.left_out == ("two",)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("saves/qwen3-vl-4b/lora/sft", "qwen3-vl-4b-lora-sft"),
        ("./outputs/out", None),
        ("output/Qwen3.5-35B-A3B", "Qwen3.5-35B-A3B"),
        ("/scratch/me/runs/captions v2/", "captions-v2"),
        ("/scratch/me/captions", "captions"),
        ("out/2024", None),
        (f"out/{'a' * 60}", "a" * 40),
        (None, None),
    ],
)
def test_the_name_comes_from_the_folder_that_is_written_to(
    folder: str | None, name: str | None
) -> None:
    assert run_name(folder) == name
