"""Requests of `clean` for a run that can be cleaned."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.cleaning.clean import CleanRequest, clean, plan_clean
from slurm_jobs.run_folder.cleanings import Kind
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.cleanable import FILES, cleanable_run

DEFAULT = CleanRequest()
WHOLE = CleanRequest(is_whole=True)
PARTS = {name for name in FILES if "/preprocess/" in name}
CHECKPOINTS = {name for name in FILES if "/checkpoints" in name}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return cleanable_run(tmp_path / "runs/r")


def keeping(*kinds: Kind) -> CleanRequest:
    return CleanRequest(keep=frozenset(kinds))


def refusal(paths: RunPaths, request: CleanRequest = DEFAULT) -> str:
    """Why the run is refused, which it is when it is planned and when it is done."""
    (error,) = plan_clean([paths.run_dir], request).refused.values()
    result = clean([paths.run_dir], request)
    assert list(result.refused) == [paths.run_dir]
    assert result.plans == ()
    return str(error)
