"""Runs, and their specs with overrides of a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.run.submission import create_run
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.spec.profile import LOCAL

SPEC = """\
name: m
cluster: local
stages:
  q: {shell: "true"}
  t: {shell: "true", matrix: {lr: [1, 2]}}
"""
MakeRun = Callable[[str], RunPaths]


@pytest.fixture
def make(tmp_path: Path) -> MakeRun:
    """A function that makes a run of a spec, of which no job was submitted."""

    def make_run(text: str) -> RunPaths:
        (tmp_path / "dataset.json").write_text("{}")
        file = tmp_path / "spec.yaml"
        file.write_text(text)
        return create_run(load(file), LOCAL)

    return make_run


TRAIN = f"""\
{SPEC}  train:
    run: train
    resources: {{tasks_per_node: 2}}
    config: {{dataset: ., num_steps: 10, device: cpu}}
"""
