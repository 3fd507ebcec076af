"""A data set to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of a data set of 23 samples in 3 shards, of a test's own."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "set"))
