"""A run whose second attempt recorded profiled steps on two ranks."""

import json

import pytest

from slurm_jobs.formats.timings.profiler_files import trace_path
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.report.profiles.made_up import event, step, write_trace


def write_spec(paths, **config):
    """The spec of the run, as far as it is read here: a training of two ranks."""
    paths.resolved_spec.parent.mkdir(exist_ok=True)
    train = {
        "run": "train",
        "resources": {"nodes": 1, "tasks_per_node": 2},
        "config": config,
    }
    paths.resolved_spec.write_text(json.dumps({"stages": {"train": train, "other": {}}}))
    paths.spec_origin.write_text(json.dumps({"spec_file": "my spec.yaml"}))


@pytest.fixture
def run(tmp_path):
    """A run folder whose second attempt recorded steps on ranks 0 and 1."""
    paths = RunPaths(tmp_path / "run")
    paths.run_dir.mkdir()
    paths.run_json.write_text("{}")
    write_spec(paths, num_steps=200, profile={"steps": [4, 6], "ranks": [0, 1]})
    for attempt, rank, end in ((1, 0, 500), (2, 0, 1000), (2, 1, 2000)):
        path = trace_path(paths.timing_dir("train", 0, attempt), rank)
        write_trace(path, step(4, 0, end), event("cpu_op", "aten::mm", 0, 400))
    return paths
