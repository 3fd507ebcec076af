"""What is taken to be wrong with a node."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.formats.node_records.doctor_facts import (
    AllReduceFacts,
    ClockFacts,
    FolderFacts,
    ProgramFacts,
    TorchFacts,
)
from tests.slurm_jobs.nodes.judged_nodes import judged
from tests.slurm_jobs.nodes.made_facts import named, node

NOFILE = {"open_files": 1024, "locked_bytes": 65536, "shm_bytes": 10**10, "memory_bytes": None}


def test_a_node_where_all_is_well_has_nothing_but_ok() -> None:
    assert {check.standing for check in judged()} == {"ok"}


def test_what_is_the_same_on_all_nodes_is_reported_once() -> None:
    second = node(node="n2", rank=1, first=ClockFacts(least_s=0.0, most_s=0.0002), file_s=0.003)
    checks = judged(node(), second)
    assert named(checks, "scontrol").where == "n1, n2"
    assert named(checks, "node-clocks").where == "n2"


@pytest.mark.parametrize(
    ("changes", "name", "standing"),
    [
        ({"python": "3.9.2"}, "node-python", "problem"),
        ({"packages": {}}, "node-packages", "problem"),
        ({"packages": {"torch": "2.16.0"}}, "node-packages", "warning"),
        ({"torch": TorchFacts(problem="torch is missing")}, "torch", "problem"),
        ({"local": FolderFacts(path="/x", problem="Permission denied")}, "node-local", "problem"),
        ({"local": FolderFacts(path="/x", kind="tmpfs")}, "node-local", "warning"),
        ({"local": FolderFacts(path="/x", kind="nfs4")}, "node-local", "warning"),
        ({"local": FolderFacts(path="/x")}, "node-local", "unknown"),
        ({"shared": FolderFacts(path="/x", problem="Read-only")}, "node-runs_dir", "problem"),
        ({"login_file_s": 31.0}, "node-runs_dir", "warning"),
        ({"login": None, "login_file_s": None}, "node-runs_dir", "unknown"),
        ({"login_file_s": None}, "node-runs_dir", "unknown"),
        ({"login": None, "login_file_s": None}, "clock", "unknown"),
        ({"login": ClockFacts(least_s=-30, most_s=30)}, "clock", "unknown"),
        ({"login": ClockFacts(least_s=8, most_s=9)}, "clock", "warning"),
        ({"login": ClockFacts(least_s=-500, most_s=-400)}, "clock", "problem"),
        ({"programs": {}}, "scontrol", "unknown"),
        ({"programs": {"scontrol": ProgramFacts()}}, "scontrol", "problem"),
        ({"signalled": False, "signal_reason": "it did not come"}, "node-signal", "problem"),
        ({"signalled": None, "signal_reason": "none was sent"}, "node-signal", "unknown"),
        ({"limits": NOFILE}, "limits", "warning"),
        ({"hub_s": None, "hub_problem": "no route"}, "model-hub", "warning"),
        ({"hub_s": None, "environment": {"HF_HUB_OFFLINE": "1"}}, "model-hub", "ok"),
        ({"rank": 1, "first_reason": "no route"}, "node-clocks", "problem"),
        ({"all_reduce": AllReduceFacts(seconds=0.1)}, "node-gloo", "ok"),
        ({"all_reduce": AllReduceFacts(problem="timed out")}, "node-gloo", "problem"),
        ({"gpu_numa_nodes": (0, 0, 1, 1)}, "node-numa", "ok"),
        ({"gpu_numa_nodes": (3, 1, 7, 5)}, "node-numa", "warning"),
        ({"gpu_numa_nodes": (-1, 0)}, "node-numa", "unknown"),
    ],
)
def test_each_thing_that_a_training_needs_is_judged(
    changes: dict[str, Any], name: str, standing: str
) -> None:
    check = named(judged(node(**changes)), name)
    assert check.standing == standing
    assert check.remedy or standing in {"ok", "unknown"}


def test_a_spec_that_trains_nothing_needs_no_packages_of_a_training() -> None:
    facts = node(packages={}, torch=TorchFacts(problem="torch is missing"))
    assert {check.standing for check in judged(facts, trains=False)} == {"ok"}
