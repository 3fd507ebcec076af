"""The script of a snapshot starts without its folder, and names a Python that is too old."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from slurm_jobs.base.processes import python_commands
from slurm_jobs.base.processes.python_commands import script_command
from slurm_jobs.run.start_script import START_SCRIPT
from tests.slurm_jobs.base.processes.shadowed import output, shadow, write_library


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
