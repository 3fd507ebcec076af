"""Folders of runs on a file system that was mounted when a run was submitted, and is not now."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from slurm_jobs.commands.run_search import remembered_dirs


def remember_unmounted(runs_dir: Path, spec_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember a folder of runs as `submit` does, with a file system of its own at its parent."""
    with tempfile.NamedTemporaryFile("w") as mounts, monkeypatch.context() as while_mounted:
        mounts.write(f"36 35 0:52 / {runs_dir.parent} rw - nfs4 server:/scratch rw\n")
        mounts.flush()
        while_mounted.setattr(remembered_dirs, "_MOUNTS", Path(mounts.name))
        assert remembered_dirs.remember(runs_dir, spec_dir) is None
