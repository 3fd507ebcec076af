"""A question on the terminal: all but a yes is a no."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.cancelled_run import cancel, paths, slurm
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["cancel", "paths", "slurm"]


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yeah no"])
def test_all_but_a_yes_is_a_no_and_ctrl_d_too(
    cancel: Command, slurm: FakeSlurm, paths: RunPaths, answer: str
) -> None:
    said = cancel(answer)
    assert said.out == "nothing was cancelled\n"
    assert "cancel r? [y/N] " in said.err
    found = json.loads(cancel(answer, "--json").out)
    assert found == {"run_dir": str(paths.run_dir), "cancelled": []}
    assert slurm.calls("scancel") == []
