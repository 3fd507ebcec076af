"""Model, data and name that a file of another tool names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.other_tools.settings_file import read_training
from slurm_jobs.commands.starter.other_tools.start_point import (
    AwaitedData,
    StartPoint,
    run_name,
    start_point,
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def started(text: str, name: str = "train.yaml") -> StartPoint:
    Path(name).write_text(text)
    return start_point(read_training(Path(name)), has_data=False)


def paths(start: StartPoint) -> list[Path]:
    return [each.path for each in start.data]


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
        ("first", ["first"], []),
        ("first, second", ["first", "second"], []),
        ("far,second,first", ["second", "first"], ["far (not here; `hf download some/set "]),
        ("clips,second", ["second"], ["clips (its column `videos`"]),
    ],
)
def test_all_data_sets_that_are_here_are_trained_on(
    listed: Path, names: str, chosen: list[str], left_out: list[str]
) -> None:
    start = started(f"model_name_or_path: a/b\ndataset: {names}\n")
    assert paths(start) == [Path(f"{listed}::{name}") for name in chosen]
    for text, beginning in zip(start.left_out, left_out, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("mix_strategy: interleave_over\ninterleave_probs: 0.7, 0.3\n", [0.7, 0.3]),
        ("mix_strategy: interleave_under\n", [1, 1]),
        ("mix_strategy: interleave_over\ninterleave_probs: '1'\n", [None, None]),
        ("mix_strategy: interleave_once\ninterleave_probs: 0.7, 0.3\n", [None, None]),
        ("interleave_probs: 0.7, 0.3\n", [None, None]),
    ],
)
def test_data_sets_have_weights_if_they_are_drawn_from(
    listed: Path, text: str, weights: list[float | None]
) -> None:
    assert listed.is_dir()
    start = started(f"model_name_or_path: a/b\ndataset: first,second\n{text}")
    assert [each.proportion.get("weight") for each in start.data] == weights
    (only,) = started(f"model_name_or_path: a/b\ndataset: first,far\n{text}").data
    assert only.proportion == {}


def test_numbers_of_rows_in_swift_are_drawn_and_probabilities_win() -> None:
    Path("a.jsonl").write_text("")
    Path("b.jsonl").write_text("")
    text = "swift sft --model a/b --dataset a.jsonl#50 b.jsonl"
    assert [each.proportion for each in started(text, "a.sh").data] == [{"num_samples": 50}, {}]
    start = started(f"{text} --interleave_prob 0.5 0.5", "b.sh")
    assert [each.proportion for each in start.data] == [{"weight": 0.5}, {"weight": 0.5}]


def test_data_are_searched_above_the_file_too(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = listed.parent / "examples" / "lora" / "train.yaml"
    file.parent.mkdir(parents=True)
    monkeypatch.chdir(file.parent)
    start = started("model_name_or_path: a/b\ndataset: first\n", str(file))
    assert paths(start) == [Path(f"{listed}::first")]


def test_data_of_a_hub_are_awaited_in_a_folder_and_found_there_later(listed: Path) -> None:
    text = "model_name_or_path: a/b\ndataset: far\n"
    start = started(text)
    download = "hf download some/set --repo-type dataset --local-dir data/set"
    assert start.awaited == AwaitedData(path=listed / "set", download=download)
    (listed / "set").mkdir()
    assert paths(started(text)) == [listed / "set"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("own/rows:sub#200", "modelscope download --dataset own/rows --local_dir data/rows"),
        ("HF::own/rows", "hf download own/rows --repo-type dataset --local-dir data/rows"),
    ],
)
def test_the_command_that_downloads_data_fits_the_hub(name: str, command: str) -> None:
    start = started(f"swift sft --model a/b --dataset '{name}'\n", "train.sh")
    assert start.awaited is not None
    assert start.awaited.download == command


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
    Path("more.jsonl").write_text("")
    start = started(
        "base_model: a/b\n"
        "datasets: [{path: json, data_files: [rows.jsonl, more.jsonl], field_messages: talk}]\n"
        "test_datasets: [{path: rows.jsonl}]\n"
    )
    assert paths(start) == [Path("rows.jsonl").absolute(), Path("more.jsonl").absolute()]
    assert start.held_out == (Path("rows.jsonl").absolute(),)
    assert [each.columns for each in start.data] == [{"messages": "talk"}] * 2


def test_columns_of_a_swift_command_are_those_of_its_data_set() -> None:
    Path("rows.jsonl").write_text("")
    (one,) = started(
        "swift sft --model a/b --tuner_type lora --dataset rows.jsonl "
        """--columns '{"ask": "query", "say": "response", "pic": "images", "x": "rejected"}'\n""",
        "sft.sh",
    ).data
    assert one.columns == {"prompt": "ask", "text": "say", "image": "pic"}


def test_a_data_set_of_version_1_is_read_from_its_list() -> None:
    Path("rows.jsonl").write_text("")
    Path("sets.yaml").write_text(
        "one: {path: rows.jsonl, size: 40, weight: 0.5}\n"
        "again: {path: rows.jsonl, weight: 2}\n"
        "two: {path: x/y}\n"
    )
    start = started("model: a/b\ntrain_dataset: sets.yaml\n")
    assert paths(start) == [Path("rows.jsonl").absolute()] * 2
    assert [each.proportion for each in start.data] == [{"num_samples": 20}, {"repeat": 2}]
    download = "hf download x/y --repo-type dataset --local-dir data/y"
    assert start.left_out == (f"two (not here; `{download}`)",)


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
