"""Commands for this Python load no module from the folder that they start in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.base.processes import python_commands
from slurm_jobs.base.processes.python_commands import module_command, script_command
from slurm_jobs.run.start_script import START_SCRIPT
from tests.slurm_jobs.base.processes.shadowed import output, shadow, write_library


@pytest.mark.parametrize("words", [(), python_commands._SAFE_PATH], ids=["3.10", "this"])
def test_a_module_runs_without_the_working_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path)
    plain = [sys.executable, "-m", "json.tool"]
    assert subprocess.run(plain, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    monkeypatch.setattr(python_commands, "_SAFE_PATH", words)
    assert json.loads(output(module_command("json.tool", "--indent", "1"), tmp_path, "[3]")) == [3]


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
