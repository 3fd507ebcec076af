"""Import paths of stages that users wrote before `shared` became `base` and `formats`."""

from __future__ import annotations

import subprocess
import sys

import pytest

EARLIER = {
    "slurm_jobs.shared.config": "slurm_jobs.formats.config",
    "slurm_jobs.shared.configs.model_parts": "slurm_jobs.formats.configs.model_parts",
    "slurm_jobs.shared.configs.training_parts": "slurm_jobs.formats.configs.training_parts",
    "slurm_jobs.shared.errors": "slurm_jobs.base.errors",
    "slurm_jobs.shared.expand": "slurm_jobs.formats.expand",
    "slurm_jobs.shared.files": "slurm_jobs.base.files",
    "slurm_jobs.shared.process": "slurm_jobs.base.processes.stop_requests",
    "slurm_jobs.shared.records": "slurm_jobs.formats.records",
    "slurm_jobs.shared.records.progress_file": "slurm_jobs.formats.records.progress_file",
    "slurm_jobs.shared.records.task_context": "slurm_jobs.formats.records.task_context",
    "slurm_jobs.shared.timings": "slurm_jobs.formats.timings",
    "slurm_jobs.shared.timings.step_records": "slurm_jobs.formats.timings.step_records",
}


@pytest.mark.parametrize(("earlier", "module"), EARLIER.items())
def test_the_earlier_path_gives_the_same_module(earlier: str, module: str) -> None:
    code = f"import {module}, {earlier}; assert {earlier} is {module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
