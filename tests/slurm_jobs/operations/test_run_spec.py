"""What a resume may change of a run's spec by `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.cluster.profile import LOCAL
from slurm_jobs.common.errors import InputError
from slurm_jobs.operations.load import load
from slurm_jobs.operations.run_spec import spec_of
from slurm_jobs.run.create import create_run
from slurm_jobs.run.paths import RunPaths

SPEC = """\
name: m
cluster: local
stages:
  q: {shell: "true"}
  t: {shell: "true", matrix: {lr: [1, 2]}}
"""


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run of which no job was submitted."""
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    return create_run(load(file), LOCAL)


@pytest.mark.parametrize("key", ["name", "name ", " name", "cluster ", "runs_dir\t", "name.x"])
@pytest.mark.parametrize("update_spec", [False, True])
def test_what_a_run_keeps_for_good_is_not_set_however_it_is_written(
    paths: RunPaths, key: str, *, update_spec: bool
) -> None:
    with pytest.raises(InputError, match="a run keeps its"):
        spec_of(paths, [f"{key}=zzz"], update_spec=update_spec)
