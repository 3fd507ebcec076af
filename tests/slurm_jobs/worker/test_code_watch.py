"""What the hook on opened files and started programs records of the user's code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.used_code import read_used_files
from slurm_jobs.worker.code_watch import _Watch, record_used_code
from tests.slurm_jobs.cli.command import command

__all__ = ["command"]


@pytest.fixture
def user_dir(tmp_path: Path) -> Path:
    user_dir = tmp_path / "user"
    (user_dir / "lib").mkdir(parents=True)
    for name in ("work.py", "helper.py", "lib/tool.py"):
        (user_dir / name).touch()
    return user_dir


def recorded(tmp_path: Path, user_dir: Path, *events: tuple[str, Any]) -> set[str] | None:
    """Names that are recorded after these events; None for the whole code."""
    folder = tmp_path / "task" / "used_code"
    folder.mkdir(parents=True, exist_ok=True)
    watch = _Watch(folder, user_dir)
    for event, arguments in events:
        watch.note(event, arguments)
    paths = RunPaths(tmp_path / "run")
    used_code = record_used_code(paths, "a", [tmp_path / "task"])
    assert used_code is not None
    names = read_used_files(paths, "a", used_code)
    return None if names is None else set(names)


def test_an_opened_file_is_recorded_however_its_path_is_written(
    tmp_path: Path, user_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(user_dir / "lib")
    events = [
        ("open", (f"{user_dir}/lib/../helper.py", "r", 0)),
        ("open", (os.fsencode(user_dir / "work.py"), "r", 0)),
        ("open", ("tool.py", "r", 0)),
        ("open", (7, "r", 0)),
        ("open", ("/etc/hostname", "r", 0)),
    ]
    assert recorded(tmp_path, user_dir, *events) == {"helper.py", "work.py", "lib/tool.py"}


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("command", "environment", "is_ours"),
    [
        (["python", "-m", "helper"], None, True),
        (["python", "-mhelper"], None, True),
        (["python", "./lib/tool.py"], None, True),
        (["python", "-m", "tool"], {"PYTHONPATH": "/opt:USER/lib"}, True),
        (["cat", "USER/work.py"], None, True),
        ([Unprintable()], None, True),
        (["ls", "/usr/lib/os-release"], None, False),
        (["nvidia-smi"], {"PYTHONPATH": "/opt"}, False),
    ],
)
def test_a_program_that_may_read_the_code_stands_for_all_of_it(
    tmp_path: Path, user_dir: Path, command: list[Any], environment: dict[str, str], is_ours: bool
) -> None:
    words = [w.replace("USER", str(user_dir)) if isinstance(w, str) else w for w in command]
    if environment:
        environment = {k: v.replace("USER", str(user_dir)) for k, v in environment.items()}
    event = ("subprocess.Popen", ("python", words, None, environment))
    opened = ("open", (str(user_dir / "work.py"), "r", 0))
    names = recorded(tmp_path, user_dir, opened, event)
    assert names == (None if is_ours else {"work.py"})


def test_a_program_in_a_folder_of_the_code_stands_for_all_of_it(
    tmp_path: Path, user_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(user_dir / "lib")
    event = ("subprocess.Popen", ("python", ["python", "tool.py"], None, None))
    assert recorded(tmp_path, user_dir, event) is None


def test_what_could_not_be_written_is_written_with_the_next_file(
    tmp_path: Path, user_dir: Path
) -> None:
    folder = tmp_path / "task" / "used_code"
    watch = _Watch(folder, user_dir)
    watch.note("open", (str(user_dir / "work.py"), "r", 0))
    folder.mkdir(parents=True)
    watch.note("open", (str(user_dir / "helper.py"), "r", 0))
    (written,) = folder.iterdir()
    assert written.read_text().split() == ["work.py", "helper.py"]
