"""Python code that runs as another user; root starts it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_python(
    folder: Path, code: str, *, uid: int, gid: int, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code with the packages that this process has; without `home` HOME is not set."""
    return _run(_startable_python(uid, gid), folder, code, uid=uid, gid=gid, home=home)


def _run(
    python: str, folder: Path, code: str, *, uid: int, gid: int, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    packages = [path for path in sys.path if "site-packages" in path]
    return subprocess.run(
        [python, "-c", code],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(ROOT), *packages]),
            **({} if home is None else {"HOME": str(home)}),
        },
        user=uid,
        group=gid,
        extra_groups=(),
        umask=0o022,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@functools.cache
def _startable_python(uid: int, gid: int) -> str:
    """A Python like this one that an ordinary user may start; that of root's home is not."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            done = _run(python, Path("/"), "import slurm_jobs.commands.submit", uid=uid, gid=gid)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip(f"an ordinary user cannot start {sys.executable} nor a {version} like it")
