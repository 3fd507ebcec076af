"""The verb `verify`, with real data sets and real processes that read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.cli.data_sets import verify
from slurm_jobs.cli.data_sets.verify import verdict_lines
from slurm_jobs.commands.data_sets.dataset_choice import DatasetPlace, VerifyResult
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.data_sets.made_datasets import dataset_dir, flip, folder, paths

__all__ = ["dataset_dir", "folder", "paths"]


def test_verify_of_a_valid_folder_exits_with_0_and_says_what_was_compared(
    folder: Path, command: Command
) -> None:
    code, out, err = command("verify", folder)
    assert (code, err) == (0, "")
    assert out.startswith(f"{folder}: 23 samples in 4 shards, ")
    assert out.endswith("no problems found\n")


def test_one_shard_is_no_shards(dataset_dir: Path) -> None:
    counts = {"num_samples": 1, "num_shards": 1, "num_bytes": 512}
    place = DatasetPlace(folder=dataset_dir)
    (line,) = verdict_lines(VerifyResult(place=place, problems=(), remedy="", counts=counts))
    assert line == f"{dataset_dir}: 1 sample in 1 shard, 512 bytes: no problems found"


def test_damaged_folder_is_1_and_names_file_sample_and_remedy(
    folder: Path, command: Command
) -> None:
    flip(folder / "shards" / "shard-000002.tar")
    code, out, _ = command("verify", folder)
    assert code == 1
    first, *problems, remedy = out.splitlines()
    assert first.endswith("2 problems found")
    assert "  shards/shard-000002.tar: sample 0000000" in problems[1]
    assert "copy these files again" in remedy


@pytest.mark.slow
def test_what_only_the_user_can_remove_makes_nothing_run_again(
    paths: RunPaths, command: Command
) -> None:
    (paths.output_dir("c-a") / "shards" / "more").mkdir()
    code, out, _ = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 1
    assert "shards/more: a folder that is not part of this data set; remove it" in out
    assert out.splitlines()[-1].startswith("next: remove the files that do not belong")


@pytest.mark.slow
def test_data_set_that_is_not_finished_asks_for_a_resume_alone(
    paths: RunPaths, command: Command
) -> None:
    (paths.output_dir("c-a") / "dataset.json").unlink()
    code, out, _ = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 1
    assert "dataset.json: missing, so the data set is not finished" in out
    assert out.endswith(f"resume {paths.run_dir}\n      runs what is missing\n")


@pytest.mark.slow
def test_json_lists_every_problem_and_the_terminal_twenty_of_a_file(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(verify, "_MOST_OF_A_FILE", 3)
    (folder / "shards" / "shard-000001.tar").write_bytes(b"")
    _, out, _ = command("verify", folder, "--json")
    (value,) = json.loads(out)["datasets"]
    assert value["num_problems"] == len(value["problems"]) == 7
    assert [p["key"] is None for p in value["problems"]] == [True] + [False] * 6
    _, out, _ = command("verify", folder)
    assert "shard-000001.tar: 4 more problems; --json lists all" in out
