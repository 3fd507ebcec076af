"""Which data sets of a run or folder are checked, and by which Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.data_sets.made_datasets import (
    dataset_dir,
    flip,
    folder,
    give_python,
    paths,
)
from tests.slurm_jobs.run.fabricate import make_run

__all__ = ["command", "dataset_dir", "folder", "paths"]


@pytest.mark.slow
def test_all_data_sets_of_a_run_are_verified_and_the_remedy_is_a_command(
    paths: RunPaths, command: Command
) -> None:
    flip(paths.output_dir("c-b") / "shards" / "shard-000003.tar")
    code, out, _ = command("verify", paths.run_dir)
    assert code == 1
    assert f"{paths.output_dir('c-a')}: 23 samples" in out
    assert f"resume {paths.run_dir} --again c-b:2\n      writes these" in out


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "names"), [("c-a", ["c-a"]), ("c", ["c-a", "c-b"])])
def test_stage_picks_data_sets(
    paths: RunPaths, command: Command, stage: str, names: list[str]
) -> None:
    code, out, _ = command("verify", paths.run_dir, "--stage", stage, "--json")
    values = json.loads(out)
    assert code == 0
    assert [value["stage"] for value in values["datasets"]] == names
    assert all(
        value["num_problems"] == 0 and value["remedy"] is None for value in values["datasets"]
    )


def test_folder_within_a_run_is_known_as_the_stages(paths: RunPaths, command: Command) -> None:
    (paths.output_dir("c-a") / "dataset.json").write_text("{")
    code, out, _ = command("verify", paths.output_dir("c-a"), "--json")
    (value,) = json.loads(out)["datasets"]
    assert (code, value["stage"], value["num_problems"]) == (1, "c-a", 1)
    assert value["remedy"].endswith("--again c-a")
    assert value["effect"].startswith("writes these files again")


@pytest.mark.slow
def test_the_python_of_the_stage_is_used_and_another_on_request(
    paths: RunPaths, command: Command
) -> None:
    give_python(paths, "c-a", "/nowhere/python")
    code, _, err = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 2
    assert "/nowhere/python: No such file or directory (the Python of stage `c-a`)" in err
    code, _, _ = command("verify", paths.run_dir, "--stage", "c-a", "--python", sys.executable)
    assert code == 0


def test_a_python_without_the_packages_is_refused_with_the_pip_command(
    folder: Path, tmp_path: Path, command: Command
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    code, _, err = command("verify", folder, "--python", bare)
    assert code == 2
    assert f"{bare} (from --python) lacks a package: No module named 'numpy'" in err
    assert "-m pip install 'slurm-jobs[train]'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify nowhere", "no run `nowhere`"),
        ("verify RUN --stage p", "--stage p: no data set of that name (there are: c-a, c-b)"),
        ("verify BARE", "no stage of it runs `consolidate`, so it has no data set"),
        ("samples nowhere", "no run `nowhere`"),
        ("samples COPY --key 99", "no sample of key 000000099; a key is the number of a row"),
        ("samples COPY --key x", "x is not a whole number"),
        ("samples RUN --key 1", "--html and --key are for one data set; choose one with --stage ("),
        ("samples RUN --html x.html", "--html and --key are for one data set"),
    ],
)
def test_wrong_words_are_2(
    paths: RunPaths, folder: Path, command: Command, words: str, message: str
) -> None:
    bare = make_run(folder.parent / "bare", {"a": 1}).run_dir
    named = {"RUN": paths.run_dir, "COPY": folder, "BARE": bare}
    code, _, err = command(*(named.get(word, word) for word in words.split()))
    assert code == 2
    assert message in err
