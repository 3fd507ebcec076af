"""Modules in a folder that end each program which loads them."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

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
