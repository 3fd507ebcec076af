"""What is taken to be wrong with the login node's Python, by the bounds of our metadata."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from slurm_jobs.nodes.doctor.pythons import python_checks, stage_python_checks
from slurm_jobs.nodes.doctor.site_facts import MeasuredPython
from slurm_jobs.nodes.doctor.version_requirements import bounds_of, meets, mismatches
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
    assert named(list(python_checks(look(**changes))), name).standing == standing


def test_a_package_that_is_missing_comes_with_the_command_that_installs_it() -> None:
    check = named(list(python_checks(look(packages={}))), "packages")
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


# Versions against bounds.


REQUIRES = ("numpy<3,>=2.0", 'torch<2.15,>=2.11; extra == "train"', "submitit (>=1.5.4,<1.6)")


def test_bounds_are_those_of_the_base_install_or_of_one_extra() -> None:
    assert bounds_of(REQUIRES) == {"numpy": ">=2.0,<3", "submitit": ">=1.5.4,<1.6"}
    assert bounds_of(REQUIRES, "train") == {"torch": ">=2.11,<2.15"}


@pytest.mark.parametrize(
    ("version", "bounds", "met"),
    [
        ("2.13.0+cu126", ">=2.11,<2.15", True),
        ("2.15.0", ">=2.11,<2.15", False),
        ("2.9.1", ">=2.11,<2.15", False),
        ("3", ">=3.0.0", True),
        ("1.2", "~=1.2", None),
        ("unknown", ">=1", None),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_number_by_number(
    version: str, bounds: str, met: bool | None
) -> None:
    assert meets(version, bounds) is met


def test_what_is_missing_outside_or_not_comparable_is_reported() -> None:
    found = mismatches({"a": "2.0", "c": "x"}, {"a": ">=1,<2", "b": ">=1", "c": ">=1", "d": ""})
    assert [str(one) for one in found] == [
        "a 2.0 is outside >=1,<2",
        "b is missing (>=1)",
        "c x cannot be compared with >=1",
        "d is missing ()",
    ]


def test_every_bound_of_our_own_metadata_can_be_compared() -> None:
    requires = importlib.metadata.distribution("slurm-jobs").requires or ()
    bounds = {**bounds_of(requires), **bounds_of(requires, "train")}
    assert len(bounds) > 10
    assert [name for name, text in bounds.items() if meets("1.0", text) is None] == []
