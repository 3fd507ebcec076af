"""A spec whose training is tuned, and the run that tunes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.tuning_spec import TuningOptions, tuning_spec
from slurm_jobs.run.submission import create_run
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.spec.checked_spec import LoadedSpec

SPEC = """\
name: shapes   # a name
cluster: local
stages:
  render: {shell: "true"}
  prepare:
    run: preprocess
    after: render
    array: {num_slices: 2}
    config:
      manifest: "${render.output_dir}/rows.jsonl"
      processor: "${render.output_dir}/processor"
  merge: {run: consolidate, after: prepare}
  train:
    run: train
    after: merge
    nsight: true
    resources: {cpus_per_task: 3, timeout_min: 600, tasks_per_node: 2}
    config:
      device: cpu
      num_loader_threads: 1   # few
      num_steps: 100
      trackers: {use: [tensorboard]}
  report: {run: report, after: train}
"""


def wanted(**values: Any) -> TuningOptions:
    return TuningOptions(**{"stage": None, "budget_min": 12.0, "data_run": None, **values})


@pytest.fixture
def load_text(tmp_path: Path) -> Callable[..., LoadedSpec]:
    def make(text: str = SPEC, overrides: tuple[str, ...] = ()) -> LoadedSpec:
        file = tmp_path / "spec.yaml"
        file.write_text(text)
        return load(file, overrides=overrides)

    return make


def made_run(loaded: LoadedSpec, **values: Any) -> RunPaths:
    tuned = tuning_spec(loaded, wanted(**values))
    assert loaded.profile is not None
    return create_run(tuned, loaded.profile)
