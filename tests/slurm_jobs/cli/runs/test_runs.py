"""squeue and sacct are programs of the test's own, so that questions can be counted."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command, Ended
from tests.slurm_jobs.cli.runs.many_runs import make, runs, slurm
from tests.slurm_jobs.run.fabricate import end
from tests.slurm_jobs.schedulers.fake_slurm import DATABASE_DOWN, FakeSlurm, account_row, queue_row

__all__ = ["runs", "slurm"]


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
    assert " ".join(rows[0]) == "run status tasks failed duration GPU h submitted scheduler"
    assert rows[3][3:] == ["3", "-", "-", "3", "d", "00", "h", "ago", "slurm"]


def ids(ended: Ended) -> list[str]:
    return [run["run_id"] for run in json.loads(ended.out)["runs"]]


def test_runs_are_chosen_by_name_age_status_and_note(
    runs: Command, command: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    names = ["shapes-20261121-080611-5b9e", "shapes-tune-20261121-080611-5b9e", "words"]
    for number, name in enumerate(names, 1):
        end(make(folder, name, f"{number}", age_s=number * 86400), "a", [0, 1, 2])
    make(folder, "lost", "9", age_s=10 * 86400)
    slurm.says("sacct", "".join(account_row(f"9_{index}", "TIMEOUT") for index in range(3)))
    _ = command("note", "runs/words", "Baseline,", "lr 1e-4").result

    assert ids(runs("--json", "--name", "shapes")) == names[:1]
    assert ids(runs("--json", "--name", "shapes*")) == names[:2]
    assert ids(runs("--json", "--since", "36h")) == names[:1]
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 5 * 86400))
    assert ids(runs("--json", "--since", day)) == names
    assert ids(runs("--json", "--status", "failed")) == ["lost"]
    assert ids(runs("--json", "--note", "baseline")) == ["words"]
    assert ids(runs("--json", "--status", "completed", "--name", "shapes-*")) == names[:2]
    assert "matches --name, --status" in runs("--name", "nosuch", "--status", "failed").out
    assert "such as 7d" in runs("--since", "yesterday", code=2).err


def test_the_duration_is_from_the_submit_to_the_last_record_of_an_end(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    done = make(folder, "done", "1", age_s=7200)
    end(done, "a", [0, 1, 2])
    os.utime(done.completions_dir("a"), (0, time.time() - 3600))
    copied = make(folder, "copied", "2", age_s=7300)
    end(copied, "a", [0, 1, 2])
    os.utime(copied.run_json)
    make(folder, "never", "3", age_s=7400)
    values = {run["run_id"]: run for run in json.loads(runs("--json").out)["runs"]}
    assert values["done"]["duration_s"] == pytest.approx(3600, abs=5)
    assert values["copied"]["duration_s"] is values["never"]["duration_s"] is None
    assert "its folder is a copy, whose files have other times" in values["copied"]["not_known"]


def test_the_size_is_measured_only_if_asked_for(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    end(make(tmp_path / "runs", "big", "1"), "a", [0, 1, 2])
    (tmp_path / "runs" / "big" / "weights").write_bytes(os.urandom(3 << 20))
    assert "size" not in runs().out
    out = runs("--size").out
    assert "these runs use 3." in out
    (run,) = json.loads(runs("--size", "--json").out)["runs"]
    assert round(run["size"]["num_bytes"] / 2**20) == 3


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_narrow_screen_omits_columns_and_cuts_notes_but_no_name(
    runs: Command, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = "captions-20261121-080611-5b9e"
    paths = make(tmp_path / "runs", name, "1", age_s=300)
    end(paths, "a", [0, 1, 2])
    paths.note.write_text("a note " * 40)
    lines = runs().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"{name}  completed  3/3  ")
    assert "a note a" in lines[1]


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
