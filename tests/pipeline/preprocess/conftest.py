"""A manifest to preprocess."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.preprocess.slices import Config, make_config


@pytest.fixture
def config(tmp_path: Path, processor_dir: Path) -> Config:
    """Of ten good rows."""
    return make_config(tmp_path, processor_dir)
