"""The controller's clock, compared within what a second allows."""

from __future__ import annotations

import pytest

from slurm_jobs.nodes.doctor.slurm_settings import slurm_checks
from tests.slurm_jobs.nodes.made_facts import CONFIG, named, slurm, spec


@pytest.mark.parametrize(
    ("stamp", "standing"), [(1000000, "ok"), (1000009, "warning"), (1000400, "problem")]
)
def test_the_controllers_clock_is_compared_within_what_a_second_allows(
    stamp: int, standing: str
) -> None:
    config = CONFIG.replace("as of 1000000", f"as of {stamp}")
    check = named(slurm_checks(slurm(config), spec()), "controller-clock")
    assert (check.standing, "within 0.6 s" in check.told) == (standing, True), check.told
