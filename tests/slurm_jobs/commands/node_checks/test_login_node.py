"""What `doctor` asks of the login node."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from slurm_jobs.commands.node_checks import login_node
from slurm_jobs.commands.node_checks.login_node import ask_slurm, measure_folder, measure_python


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in login_node.NEEDED:
        _script(folder / name, "echo slurm 23.11.1")
    monkeypatch.setenv("PATH", str(folder))  # a real Slurm may be beside it
    return folder


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_a_controller_that_hangs_is_given_up_and_not_queried_again(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_node, "LIMIT_S", 0.5)
    _script(commands / "scontrol", "exec /bin/sleep 60")
    start_s = time.monotonic()
    facts = ask_slurm()
    assert time.monotonic() - start_s < 10
    assert not facts.settings
    assert "no answer in 0.5 s" in facts.answers["config"].problem
    assert facts.answers["queue"].problem.startswith("not asked")
    assert facts.answers["version"].text == "slurm 23.11.1\n"


def test_a_command_that_is_not_there_is_named(commands: Path) -> None:
    (commands / "sacct").unlink()
    _script(commands / "scontrol", "echo 'ClusterName = c'")
    facts = ask_slurm()
    assert "sacct" in facts.missing
    assert facts.answers["accounts"].problem
    assert facts.settings


def test_a_folder_is_tried_out_and_left_as_it_was(tmp_path: Path) -> None:
    look = measure_folder("runs_dir", tmp_path / "to" / "come")
    assert look.link_problem == ""
    assert look.write_s is not None
    assert look.folder.free_bytes
    assert look.folder.kind
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No file system of this machine lacks them: the system call is the test's own.
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    look = measure_folder("runs_dir", tmp_path)
    assert look.link_problem == "Operation not permitted"


def test_a_folder_that_takes_nothing_says_why() -> None:
    assert measure_folder("runs_dir", Path("/proc/nowhere")).folder.problem


def test_a_file_system_that_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(login_node, "LIMIT_S", 0.2)
    monkeypatch.setattr(login_node, "_measured_folder", lambda *_: is_over.wait(30))
    look = measure_folder("home", tmp_path)
    is_over.set()
    assert "did not answer within 0.2 s" in look.late


def test_a_quota_that_never_answers_is_no_dead_file_system(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_node, "LIMIT_S", 2.0)
    _script(commands / "quota", "exec /bin/sleep 60")
    look = measure_folder("home", tmp_path)
    assert (look.late, look.link_problem) == ("", "")
    assert "no answer in 2 s" in look.quota.problem


def test_this_python_is_checked_with_those_that_stages_name() -> None:
    look = measure_python(["/usr/bin/env", "/nowhere/python"])
    assert look.stage_pythons == {"/usr/bin/env": True, "/nowhere/python": False}
    assert look.open_s is not None
    assert look.packages["pydantic"]
