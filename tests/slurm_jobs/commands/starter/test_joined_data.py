"""Several data of one spec: those that a user names, or all of a list with their shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, begin, images, init
from tests.slurm_jobs.commands.starter.test_first_spec import model

__all__ = ["begin", "command", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "vlm")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(b"GIF89a")
        rows = [{"image": "x.png", "text": f"words {n}"} for n in range(40)]
        (tmp_path / name / "train.json").write_text(json.dumps(rows))


def _manifest(init: Init, *words: str) -> list[dict[str, Any]]:
    said = init("specs", *words, "--model", "vlm", "--yes").out
    assert "no problems found" in said
    spec = yaml.safe_load(Path("specs/finetune.yaml").read_text())
    manifest: list[dict[str, Any]] = spec["stages"]["preprocess"]["config"]["manifest"]
    return manifest


def test_repeated_data_become_a_list_with_names_of_their_own(init: Init) -> None:
    images(Path("pics"))
    words = [word for path in ("a/train.json", "b/train.json", "pics") for word in ("--data", path)]
    first, second, third = _manifest(init, *words)
    assert first == {"path": "../a/train.json"}
    assert second == {"path": "../b/train.json", "name": "train-2"}
    assert third == {"path": "finetune-3.jsonl", "image_root": "../pics"}


def test_all_of_a_list_are_mixed_by_its_shares(init: Init) -> None:
    sets = {
        "one": {"annotation": "a/train.json", "root": "a", "repeat_time": 2},
        "two": {"annotation": "b/train.json", "root": "b", "repeat_time": 1},
    }
    Path("meta.json").write_text(json.dumps(sets))
    one, two = _manifest(init, "--data", "meta.json::*")
    assert one == {"path": "../a/train.json", "name": "one", "repeat": 2}
    assert two == {"path": "../b/train.json", "name": "two"}


def test_share_of_a_single_data_set_is_kept(init: Init) -> None:
    sets = {"few": {"file_name": "a/train.json", "media_dir": "a", "num_samples": 7}}
    Path("dataset_info.json").write_text(json.dumps(sets))
    (few,) = _manifest(init, "--data", "dataset_info.json")
    assert few == {"path": "../a/train.json", "name": "few", "num_samples": 7}
