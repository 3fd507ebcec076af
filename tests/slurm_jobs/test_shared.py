"""Import paths of stages that users wrote before `shared` became `base` and `formats`."""

from __future__ import annotations

import importlib
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
    "slurm_jobs.shared.node_records.probe_measures": (
        "slurm_jobs.formats.node_records.probe_measures"
    ),
    "slurm_jobs.shared.process": "slurm_jobs.base.processes.stop_requests",
    "slurm_jobs.shared.records": "slurm_jobs.formats.records",
    "slurm_jobs.shared.processes.stop_requests": "slurm_jobs.base.processes.stop_requests",
    "slurm_jobs.shared.records.attempt_records": "slurm_jobs.formats.records.attempt_records",
    "slurm_jobs.shared.records.progress_file": "slurm_jobs.formats.records.progress_file",
    "slurm_jobs.shared.records.task_context": "slurm_jobs.formats.records.task_context",
    "slurm_jobs.shared.timings": "slurm_jobs.formats.timings",
    "slurm_jobs.shared.timings.step_records": "slurm_jobs.formats.timings.step_records",
}


@pytest.mark.parametrize(("earlier", "module"), EARLIER.items())
def test_the_earlier_path_gives_the_same_module(earlier: str, module: str) -> None:
    code = f"import {module}, {earlier}; assert {earlier} is {module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_earlier_path_alone_leaves_the_module_as_it_is() -> None:
    code = (
        "import slurm_jobs.shared.records.attempt_records as earlier, sys\n"
        "name = 'slurm_jobs.formats.records.attempt_records'\n"
        "assert (earlier.__name__, earlier.__spec__.name) == (name, name)\n"
        "assert sys.modules[name] is earlier"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_path_that_never_was_is_missing() -> None:
    for name in ("slurm_jobs.shared.nothing", "slurm_jobs.shared.records.nothing"):
        with pytest.raises(ModuleNotFoundError, match=name):
            importlib.import_module(name)
