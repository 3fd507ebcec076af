"""Status of a run as JSON: each slice and stage has its source and age."""

from __future__ import annotations

import json

from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.array_of_four import paths, slurm, status
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["paths", "slurm", "status"]


def test_each_slice_and_stage_says_its_source_and_age(status: Command, slurm: FakeSlurm) -> None:
    found = json.loads(status("--json").out)
    (stage,) = found["stages"]
    assert [(part["status"], part["source"]) for part in stage["slices"]] == [
        ("running", "squeue"),
        ("waiting", "squeue"),
        ("failed", "sacct"),
        ("completed", "record"),
    ]
    assert [part["age_s"] is None for part in stage["slices"]] == [False, False, False, True]
    assert stage["sources"] == ["squeue"]
    assert 0 <= stage["age_s"] < 60
