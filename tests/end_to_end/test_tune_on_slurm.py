"""`slurm-jobs tune` on a real Slurm: its trials run on all nodes of one allocation."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.demo import copy_configs, small
from tests.end_to_end.driver import Driver

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ON_TWO_NODES = {
    "cluster": "clusters/test-cluster.yaml",
    "stages.train.resources.nodes": 2,
    "stages.train.resources.tasks_per_node": 1,
    "stages.train.resources.cpus_per_task": 1,
}


def test_two_nodes_make_a_trial_together_and_say_what_budget_they_need(on_slurm: Driver) -> None:
    """Of a budget that is too small the first trial is made, which shows how large it must be."""
    sets = [word for key, value in ON_TWO_NODES.items() for word in ("--set", f"{key}={value}")]
    words = ["tune", copy_configs(on_slurm), *small(), *sets, "--budget", "0.1"]
    done = on_slurm.run(*words, check=1)
    assert "is too small" in done.stderr
    assert " --set stages.train.config.budget_min=" in done.stderr.splitlines()[-1]
    (run_dir,) = (on_slurm.folder / "runs").iterdir()
    (path,) = (run_dir / "data/train/trials").glob("*.json")
    probe = json.loads(path.read_text())
    assert probe["failure"] == ""
    assert probe["tokens_per_s"] > 0
    assert len(set(probe["nodes"])) == 2
    timings = sorted((run_dir / "timing").rglob("rank-*.steps"))
    assert [timing.name for timing in timings] == ["rank-00000.steps", "rank-00001.steps"]
