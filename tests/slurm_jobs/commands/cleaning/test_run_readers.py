"""Data that another run still reads stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.commands.cleaning.clean import clean, plan_clean
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.cleaning.cleaned import DEFAULT, WHOLE, paths, refusal
from tests.slurm_jobs.run.cleanable import cleanable_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["paths"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def test_data_that_an_unfinished_run_reads_stays(paths: RunPaths) -> None:
    dataset = paths.output_dir("consolidate")
    other = cleanable_run(paths.run_dir.with_name("reader"), complete=("preprocess",))
    spec = json.loads(other.resolved_spec.read_text())
    spec["stages"]["train"]["config"] = {"dataset": str(dataset)}
    write_json_atomic(other.resolved_spec, spec)
    words = refusal(paths, WHOLE)
    assert str(other.run_dir) in words
    assert str(dataset) in words
    assert [*plan_clean([paths.run_dir], DEFAULT).refused] == []  # it does not read the parts
    shutil.rmtree(other.run_dir)
    clean([paths.run_dir], WHOLE)
    assert not paths.run_dir.exists()
