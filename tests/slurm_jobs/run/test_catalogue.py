"""Runs of some folders: which are listed, counted and left out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.commands.run_search.remembered_dirs import remember
from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.run.catalogue import list_runs
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.runs.many_runs import make, runs, slurm
from tests.slurm_jobs.commands.unmounted import remember_unmounted
from tests.slurm_jobs.nodes.fabricate_probes import probe
from tests.slurm_jobs.run.fabricate import end, make_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["command", "runs", "slurm"]


def test_a_status_is_looked_for_in_all_runs_and_the_rest_counted(
    runs: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    for number in range(1, 31):
        paths = make(tmp_path / "runs", f"r{number:02}", str(number), age_s=number * 60)
        end(paths, "a", [0, 1, 2] if number > 25 else [0])
    found = json.loads(runs("--status", "completed", "--number", "3", "--json").out)
    assert [run["run_id"] for run in found["runs"]] == ["r26", "r27", "r28"]
    assert found["num_left_out"] == 2
    assert len(slurm.calls("sacct")) == 1


@pytest.mark.parametrize(
    "plant", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]
)
def test_a_note_that_is_no_file_hides_no_run(
    runs: Command, slurm: FakeSlurm, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    paths = make(tmp_path / "runs", "shapes", "1")
    plant(paths.note)
    out = runs().out
    assert "shapes" in out
    assert "(note.txt" in out


def test_twenty_runs_are_listed_by_default(runs: Command, slurm: FakeSlurm, tmp_path: Path) -> None:
    for number in range(1, 23):
        make(tmp_path / "runs", f"r{number}", str(number), age_s=number * 60)
    output = runs().out
    assert output.count("slurm") == 20
    assert "2 older runs are not listed" in output


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


def test_the_runs_of_all_folders_that_were_submitted_to_are_listed(
    runs: Command, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "runs", "near", "1", age_s=60)
    make(tmp_path / "scratch", "far", "2")
    for folder in ("runs", "scratch"):
        remember(tmp_path / folder, tmp_path)
    remember_unmounted(tmp_path / "unmounted/ada/runs", tmp_path, monkeypatch)
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


def test_the_folder_of_probes_is_no_run(tmp_path) -> None:
    keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    catalogue = list_runs([tmp_path], number=5)
    assert (catalogue.runs, catalogue.unreadable) == ((), {})
