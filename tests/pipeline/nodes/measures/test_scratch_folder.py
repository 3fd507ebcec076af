"""Temporary folders of probes: removed by the next probe once their process has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipeline.nodes.measures.scratch_folder import remove_left_behind, scratch_folder

_HOLD = """
import sys, time
from pathlib import Path
from pipeline.nodes.measures.scratch_folder import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "small").write_bytes(b"x")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_probe_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    (theirs,) = tmp_path.iterdir()
    with scratch_folder(tmp_path):
        assert theirs.exists()  # it is at work
    held.send_signal(signal.SIGKILL)
    held.wait()
    assert theirs.exists()
    with scratch_folder(tmp_path):
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_old_folder_of_a_host_that_cannot_be_asked_is_removed(tmp_path: Path) -> None:
    for name, age_s in (("old", 7200.0), ("new", 10.0)):
        folder = tmp_path / f"slurm-jobs-probe-{name}"
        folder.mkdir()
        (folder / "owner.json").write_text(
            '{"pid": 1, "start_ticks": 1, "pid_space": "another host"}'
        )
        os.utime(folder, (time.time() - age_s,) * 2)
    remove_left_behind(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["slurm-jobs-probe-new"]
