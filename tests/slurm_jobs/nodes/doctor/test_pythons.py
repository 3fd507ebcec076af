"""What is taken to be wrong with the login node's Python."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.nodes.doctor.doctor_check import judged
from slurm_jobs.nodes.doctor.pythons import PYTHON_CHECKS, stage_python_checks
from slurm_jobs.nodes.doctor.site_facts import MeasuredPython
from tests.slurm_jobs.nodes.made_facts import named


def look(**changes: Any) -> MeasuredPython:
    values: dict[str, Any] = {
        "version": "3.11.7",
        "executable": "/env/bin/python",
        "packages": {"pyyaml": "6.0.3"},
        "requires": ("pyyaml<7,>=6.0.2",),
        "requires_python": ">=3.11",
        "open_s": 0.0002,
        "num_opened": 200,
    }
    return MeasuredPython(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "name", "standing"),
    [
        ({}, "packages", "ok"),
        ({}, "imports", "ok"),
        ({"requires": None}, "packages", "unknown"),
        ({"version": "3.10.1"}, "python", "problem"),
        ({"packages": {}}, "packages", "problem"),
        ({"packages": {"pyyaml": "5.4"}}, "packages", "warning"),
        ({"open_s": 0.01}, "imports", "warning"),
        ({"open_s": None}, "imports", "unknown"),
    ],
)
def test_versions_and_reading_are_judged(changes: dict[str, Any], name: str, standing: str) -> None:
    assert named(judged(PYTHON_CHECKS, look(**changes)), name).standing == standing


def test_a_package_that_is_missing_comes_with_the_command_that_installs_it() -> None:
    check = named(judged(PYTHON_CHECKS, look(packages={})), "packages")
    assert check.remedy == "/env/bin/python -m pip install 'pyyaml>=6.0.2,<7'"


@pytest.mark.parametrize(
    ("is_here", "started", "standing"),
    [(True, [], "ok"), (False, [], "unknown"), (False, ["/envs/x/bin/python"], "ok")],
)
def test_a_python_of_the_nodes_alone_is_well_once_it_has_run_there(
    is_here: bool, started: list[str], standing: str
) -> None:
    facts = look(stage_pythons={"/envs/x/bin/python": is_here})
    (check,) = stage_python_checks(facts, started)
    assert check.standing == standing
