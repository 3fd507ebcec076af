"""A command whose reader leaves at once finishes its files and keeps its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.run.observe import status_of
from tests.slurm_jobs.cli.own_process import ended_process
from tests.slurm_jobs.report import fabricate_run


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_reader_that_leaves_at_once_loses_neither_the_table_nor_the_page(tmp_path, as_json):
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario(num_steps=200))
    table = tmp_path / "steps.csv"
    reading, writing = os.pipe()
    os.close(reading)
    words = ["report", str(paths.run_dir), "--export", str(table), *as_json]
    command = [sys.executable, "-m", "slurm_jobs", *words]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")  # 1 would be a run that failed
    assert table.exists()
    assert paths.report_html.exists()


def test_an_error_as_json_whose_reader_has_left_keeps_its_exit_code(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = ended_process(["check", str(tmp_path / "none.yaml"), "--json"], writing)
    os.close(writing)
    assert ended.returncode == 2
    assert "none.yaml: no such file" in ended.stderr


STAGES = "{a: {shell: 'true'}, b: {shell: 'true', after: a}}"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    spec = tmp_path / "s.yaml"
    spec.write_text(f"name: s\ncluster: local\nruns_dir: runs\nstages: {STAGES}\n")
    return spec


def test_all_jobs_are_submitted_although_standard_output_is_full(spec: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = ended_process(["run", str(spec)], full)
    assert ended.returncode == 3
    assert "standard output: No space left on device; the command went on" in ended.stderr
    (run,) = spec.with_name("runs").iterdir()
    assert status_of(run).status == "completed"


@pytest.mark.parametrize("verb", ["status", "run", "check"])
def test_a_full_disk_below_both_streams_is_3_and_not_a_run_that_failed(
    spec: Path, verb: str
) -> None:
    _ = ended_process(["run", str(spec)], subprocess.DEVNULL)
    command = f"exec {sys.executable} -m slurm_jobs {verb} {spec} >/dev/full 2>&1"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 3


def test_an_error_of_an_acting_verb_is_said_although_its_json_is_lost(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = ended_process(["submit", str(tmp_path / "none.yaml"), "--json"], full)
    assert ended.returncode == 3
    assert "none.yaml: no such file" in ended.stderr
    assert "went on to its end" not in ended.stderr


def test_a_page_is_shared_and_the_report_that_was_lost_is_an_error(tmp_path: Path) -> None:
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario(num_steps=200))
    shared = tmp_path / "shared.html"
    with Path("/dev/full").open("w") as full:
        ended = ended_process(["report", str(paths.run_dir), "--share", str(shared)], full)
    assert ended.returncode == 3
    assert "No space left on device" in ended.stderr
    assert shared.exists()


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_does_its_work_without_a_standard_stream(spec: Path, closed: str) -> None:
    command = f"exec {sys.executable} -m slurm_jobs run {spec} {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    (run,) = spec.with_name("runs").iterdir()
    assert status_of(run).status == "completed"
