"""Versions and bounds, in the form of our own metadata."""

from __future__ import annotations

import importlib.metadata

import pytest

from slurm_jobs.nodes.doctor.version_requirements import bounds_of, meets, mismatches

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
        ("2.11.0a0+nv25.1", ">=2.11", True),
        ("1.2", "=>1.2", None),
        ("unknown", ">=1", None),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(
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
