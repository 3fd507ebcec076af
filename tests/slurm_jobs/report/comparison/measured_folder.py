"""A run folder whose training is measured."""

from __future__ import annotations

import pytest


@pytest.fixture
def paths(run_of):
    """A run whose training ended in its first attempt."""
    return run_of(stopped_at=None)[0]


@pytest.fixture
def folder(paths):
    return paths.timing_dir("train", 0, 1)
