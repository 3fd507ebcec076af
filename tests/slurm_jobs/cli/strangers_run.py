"""A run whose texts control a terminal, and the output of commands that show it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm

ROOT = Path(__file__).resolve().parents[3]
EVIL = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x9b5n\u202egnp.\r<script>alert(1)</script>&\"'"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run whose name, host and reason of failure are a stranger's."""
    make_fake_slurm(tmp_path / "bin", monkeypatch)
    paths = make_run(tmp_path / "runs" / "r-20261121-080611-5b9e", {"a": 1})
    meta = json.loads(paths.run_json.read_text())
    paths.run_json.write_text(json.dumps({**meta, "name": EVIL, "submitted_by": EVIL}))
    submit(paths, "a", 1, "1")
    end(paths, "a", [0], "failed", reason=f"rank 0: {EVIL}")
    log = paths.run_dir / "logs" / "a" / "s00000.a0001.rank-00000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{EVIL}\nlast line\n")
    return paths


def on_terminal(words: list[str], **environment: str) -> str:
    """What a terminal is sent."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_jobs", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(follower)
    sent = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the end, as Linux tells it
            break
        sent += piece
        if not piece:
            break
    os.close(leader)
    process.wait()
    return sent.decode(errors="replace").replace("\r\n", "\n")
