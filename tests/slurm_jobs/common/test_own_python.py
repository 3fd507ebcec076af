"""Processes of ours load no module from the folder that they start in, nor beside a script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import slurm_jobs
from slurm_jobs.common import entry_process, own_python
from slurm_jobs.common.own_python import module_command, script_command
from slurm_jobs.run.snapshot import START_SCRIPT

SHADOWED = ("argparse", "importlib", "json", "pathlib", "runpy", "signal", "threading")


def shadow(folder: Path) -> None:
    """Modules that a program of ours needs, and that end it."""
    folder.mkdir(exist_ok=True)
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the folder')\n")


def output(command: list[str], folder: Path, given: str = "") -> str:
    done = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [(), own_python._SAFE_PATH], ids=["3.10", "this"])
def test_a_module_runs_without_the_working_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path)
    plain = [sys.executable, "-m", "json.tool"]
    assert subprocess.run(plain, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    monkeypatch.setattr(own_python, "_SAFE_PATH", words)
    assert json.loads(output(module_command("json.tool", "--indent", "1"), tmp_path, "[3]")) == [3]


@pytest.mark.parametrize("words", [(), own_python._SAFE_PATH], ids=["3.10", "this"])
def test_a_snapshot_starts_without_the_folder_of_its_script(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path)
    package = tmp_path / "lib" / "slurm_jobs"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(
        "import argparse, json, runpy, threading\ndef main(words): print(json.dumps(words))\n"
    )
    (tmp_path / "start.py").write_text(START_SCRIPT)
    monkeypatch.setattr(own_python, "_SAFE_PATH", words)
    said = output(script_command(tmp_path / "start.py", "task", tmp_path), tmp_path)
    assert json.loads(said) == ["task", str(tmp_path)]


def test_a_verbs_process_starts_without_the_folder_of_its_script(tmp_path: Path) -> None:
    shadow(tmp_path)
    script = tmp_path / "entry_process.py"
    script.write_bytes(Path(entry_process.__file__).read_bytes())
    packages = {"slurm_jobs": str(Path(slurm_jobs.__file__).parent)}
    request = {"packages": packages, "entry_point": "operator:is_", "arguments": {}}
    with subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()  # and stays open: who asks is still there
        assert json.loads(process.stdout.read()) == {"result": False}
