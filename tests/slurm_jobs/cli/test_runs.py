"""squeue and sacct are programs of the test's own, so that questions can be counted."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from slurm_jobs.commands.remembered_dirs import remember
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import (
    DATABASE_DOWN,
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def make(folder: Path, name: str, job_id: str, *, age_s: float = 0.0) -> RunPaths:
    """A run of an array of three, submitted so long ago."""
    moment = time.time() - age_s
    paths = make_run(folder / name, {"a": 3}, created_unix_s=moment)
    submit(paths, "a", 3, job_id)
    os.utime(paths.run_json, (moment, moment))
    return paths


@pytest.fixture
def runs(command: Command) -> Command:
    return lambda *words, code=0: command("runs", *words, code=code)


def test_runs_are_listed_newest_first_with_status_and_tasks_done(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    make(tmp_path / "runs", "old", "1", age_s=3 * 86400)
    going = make(tmp_path / "runs", "going", "2", age_s=7200)
    done = make(tmp_path / "runs", "done", "3", age_s=60)
    end(done, "a", [0, 1, 2])
    end(going, "a", [1])
    slurm.says("squeue", queue_row("2_0", "RUNNING") + queue_row("2_2", "PENDING"))
    slurm.says("sacct", "".join(account_row(f"1_{index}", "TIMEOUT") for index in range(3)))
    rows = [line.split() for line in runs().out.splitlines()]
    assert [row[:3] for row in rows[1:]] == [
        ["done", "completed", "3/3"],
        ["going", "running", "1/3"],
        ["old", "failed", "0/3"],
    ]
    assert rows[3][3:] == ["3", "d", "00", "h", "ago", "slurm"]


def test_any_number_of_runs_costs_two_squeue_and_one_sacct(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    for number in range(1, 31):
        make(tmp_path / "runs", f"r{number}", str(number), age_s=number * 60)
    found = json.loads(runs("--number", "25", "--json").out)
    assert [run["run_id"] for run in found["runs"]] == [f"r{number}" for number in range(1, 26)]
    assert found["num_left_out"] == 5
    assert len(slurm.calls("squeue")) == 2  # one is for jobs whose run folder is gone
    assert len(slurm.calls("sacct")) == 1
    assert f" -j {','.join(str(number) for number in range(1, 26))} " in slurm.calls("sacct")[0]


def test_twenty_runs_are_listed_by_default(runs: Command, slurm: FakeSlurm, tmp_path: Path) -> None:
    for number in range(1, 23):
        make(tmp_path / "runs", f"r{number}", str(number), age_s=number * 60)
    output = runs().out
    assert output.count("slurm") == 20
    assert "and 2 older" in output


def test_folders_that_cannot_be_read_are_named_and_the_others_listed(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    make(folder, "good", "1")
    (folder / "cut").mkdir()
    (folder / "cut" / "run.json").write_text('{"run_id": ')
    (folder / "odd").mkdir()
    (folder / "odd" / "run.json").write_text("[]")
    make_run(folder / "early", {"a": 1}).plan(1).unlink()
    (folder / "loop").symlink_to("loop")  # root may read all, but not this
    (folder / "notes").mkdir()
    (folder / "notes.txt").touch()
    found = json.loads(runs("--json").out)
    assert [run["run_id"] for run in found["runs"]] == ["good"]
    assert {Path(name).name for name in found["unreadable"]} == {"cut", "odd", "early", "loop"}
    output = runs().out
    assert "cannot read runs/early: has no plan" in output
    assert "notes" not in output


def test_a_folder_may_be_named_by_option_or_environment(
    runs: Command, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "elsewhere", "there", "1")
    assert [
        run["run_id"] for run in json.loads(runs("--dir", "elsewhere", "--json").out)["runs"]
    ] == ["there"]
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", "elsewhere")
    assert [run["run_id"] for run in json.loads(runs("--json").out)["runs"]] == ["there"]
    (tmp_path / "empty").mkdir()
    assert "no run in empty" in runs("--dir", "empty").out
    assert "--dir" in runs("--dir", "nowhere", code=2).err


def test_the_runs_of_all_folders_that_were_submitted_to_are_listed(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    make(tmp_path / "runs", "near", "1", age_s=60)
    make(tmp_path / "scratch", "far", "2")
    for folder in ("runs", "scratch", "unmounted/ada/runs"):
        remember(tmp_path / folder, tmp_path)
    listed = runs().out
    rows = [line.split() for line in listed.splitlines()]
    assert [[row[0], row[-1]] for row in rows[:3]] == [
        ["run", "folder"],
        ["far", "scratch"],
        ["near", "runs"],
    ]
    assert "cannot read unmounted/ada/runs: No such file or directory; is its file" in listed
    assert [run["run_id"] for run in json.loads(runs("--json").out)["runs"]] == ["far", "near"]
    only = runs("--dir", "runs").out
    assert "far" not in only
    assert "folder" not in only


def test_a_silent_scheduler_is_reported_once_and_by_the_exit_code(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    for number in range(1, 4):
        make(tmp_path / "runs", f"r{number}", str(number))
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)
    assert runs().out.count("could not be queried: sacct") == 1
    slurm.says("squeue", "", exit_code=1)
    for number in range(1, 4):
        (tmp_path / f"runs/r{number}/scheduler-answer.json").unlink()
    assert runs(code=3).out.count("could not be queried: squeue") == 1
