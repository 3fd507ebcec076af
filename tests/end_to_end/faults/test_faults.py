"""Every fault ends, after the last resume, in the bytes of a run in which nothing went wrong."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver
from tests.end_to_end.faults.kinds import FAULTS
from tests.end_to_end.faults.page import note
from tests.end_to_end.faults.scene import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.faults]

SEED = 20261121
NUM_ROUNDS = int(os.environ.get("SLURM_JOBS_FAULT_ROUNDS", "1"))


@pytest.mark.parametrize("round_number", range(1, NUM_ROUNDS + 1))
@pytest.mark.parametrize("name", FAULTS)
def test_the_result_is_that_of_an_undisturbed_run(
    name: str, round_number: int, on_slurm: Driver, cluster: Cluster, undisturbed: Path
) -> None:
    chance = random.Random(f"{SEED} {name} {round_number}")
    scene = Scene(driver=on_slurm, cluster=cluster, chance=chance)
    try:
        FAULTS[name](scene)
        scene.finish()
    finally:
        cluster.heal_daemons()
    scene.require_undisturbed(undisturbed)
    note(FAULTS[name].__doc__, scene.num_injected, "same bytes", num_resumes=scene.num_resumes)
