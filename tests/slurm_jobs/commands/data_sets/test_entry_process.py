"""Processes of ours load no module from the folder that they start in, nor beside a script."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import slurm_jobs
from slurm_jobs.base.processes import python_commands
from slurm_jobs.base.processes.python_commands import module_command, script_command
from slurm_jobs.commands.data_sets import entry_process
from slurm_jobs.run.start_script import START_SCRIPT

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


def write_library(folder: Path, worker: str) -> None:
    """Write the archive of a snapshot, with this module as its worker."""
    with zipfile.ZipFile(folder / "lib.zip", "w") as library:
        library.writestr("slurm_jobs/__init__.py", "")
        library.writestr("slurm_jobs/worker/__init__.py", worker)
        library.writestr("slurm_jobs/worker/code_watch.py", "def continue_watch(): pass\n")


@pytest.mark.parametrize("words", [(), python_commands._SAFE_PATH], ids=["3.10", "this"])
def test_a_module_runs_without_the_working_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path)
    plain = [sys.executable, "-m", "json.tool"]
    assert subprocess.run(plain, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    monkeypatch.setattr(python_commands, "_SAFE_PATH", words)
    assert json.loads(output(module_command("json.tool", "--indent", "1"), tmp_path, "[3]")) == [3]


@pytest.mark.parametrize("words", [(), python_commands._SAFE_PATH], ids=["3.10", "this"])
def test_a_snapshot_starts_without_the_folder_of_its_script(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path)
    write_library(
        tmp_path,
        "import argparse, json, runpy, threading\ndef main(words): print(json.dumps(words))\n",
    )
    (tmp_path / "start.py").write_text(START_SCRIPT)
    monkeypatch.setattr(python_commands, "_SAFE_PATH", words)
    said = output(script_command(tmp_path / "start.py", "task", tmp_path), tmp_path)
    assert json.loads(said) == ["task", str(tmp_path)]


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_children_of_multiprocessing_find_what_their_parent_finds(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each runs the script again, as `__mp_main__`, after it has got its parent's `sys.path`."""
    user = tmp_path / "user"
    user.mkdir()
    (user / "own.py").write_text("def work(x): return x + 1\n")
    write_library(
        tmp_path,
        "import multiprocessing, sys\n"
        "def main(words):\n"
        "    sys.path.insert(0, words[0])\n"
        "    import own\n"
        "    with multiprocessing.get_context(words[1]).Pool(1) as pool:\n"
        "        print(pool.apply_async(own.work, (41,)).get(60))\n",
    )
    (tmp_path / "start.py").write_text(START_SCRIPT)
    monkeypatch.setattr(python_commands, "_SAFE_PATH", ())
    assert output(script_command(tmp_path / "start.py", user, way), tmp_path) == "42\n"


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_a_too_old_python_is_refused_with_the_versions(version: str, tmp_path: Path) -> None:
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not kept:
        pytest.skip(f"this machine has no Python {version}")
    (tmp_path / "start.py").write_text(START_SCRIPT)
    done = subprocess.run(
        [kept[0], tmp_path / "start.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"slurm-jobs: {kept[0]} is Python {version}.")
    assert "jobs need 3.10 or newer; name such a one as `python:`" in done.stderr


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
