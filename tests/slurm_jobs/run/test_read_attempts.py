"""Of an array, the slices whose attempts need an explanation are read."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_jobs.formats.records.attempt_records import Outcome
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.tried_again import began, ended, make, row, slurm, stopped_twice
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["command", "slurm", "stopped_twice"]


def test_of_an_array_only_slices_that_need_an_explanation_are_shown(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 100)
    rows = []
    for index in range(100):
        began(paths, 1, 2000.0, index=index, job=f"7_{index}")
        has_failed = index >= 70
        outcome: Outcome = "failed" if has_failed else "completed"
        ended(paths, 1, 2030.0, outcome, index=index, reason="ValueError: x" if has_failed else "")
        rows.append(row("FAILED" if has_failed else "COMPLETED", 1999, 2031, f"7_{index}"))
    slurm.says("sacct", "".join(rows))
    out = command("status", paths.run_dir, "--stage", "train", code=1).out
    assert "slices 70-89: ValueError: x" in out
    assert "and 10 slices more; --json has all" in out
    values = json.loads(command("status", paths.run_dir, "--stage", "train", "--json", code=1).out)
    assert len(values["stages"][0]["attempts"]) == 30
