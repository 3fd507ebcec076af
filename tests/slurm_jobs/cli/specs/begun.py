"""`init` in a folder with images and models of the tests."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command, Ended

Init = Callable[..., Ended]


@pytest.fixture
def begin(command: Command) -> Init:
    """`init` on a cluster, if there is one."""

    return lambda *words, code=0: command("init", *words, code=code)


@pytest.fixture
def init(begin: Init) -> Init:
    """`init` for this machine alone."""
    return lambda *words, code=0: begin("--local", *words, code=code)


def images(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.jpg").write_bytes(b"GIF89a")
    return folder


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Somebody at a terminal, whose lines these are."""
    stream = io.StringIO(text)
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", stream)


SLURM = {
    "sbatch": "",
    "scontrol": """case "$*" in
*config*) echo 'ClusterName = here' ;;
*) echo 'PartitionName=gpu Default=YES MaxTime=30 State=UP' ;;
esac""",
    "sinfo": "echo 'gpu|4|64|512000|gpu:a100:4|(null)'",
    "squeue": "",
    "sacctmgr": "",
}
"""A cluster with one partition of 30 minutes."""


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **other: str) -> None:
    """Commands of Slurm's names, alone but for a shell."""
    folder.mkdir()
    for name, text in {**SLURM, **other}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(str(shutil.which('sh'))).parent}")
