"""Every fault ends, after the last resume, in the bytes of a run in which nothing went wrong."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", FAULTS)
def test_the_result_is_that_of_an_undisturbed_run(
    name: str, on_slurm: Driver, cluster: Cluster, undisturbed: Path
) -> None:
    scene = Scene(driver=on_slurm, cluster=cluster, chance=random.Random(f"{SEED} {name}"))
    try:
        FAULTS[name](scene)
        scene.finish()
    finally:
        cluster.heal_daemons()
    scene.require_undisturbed(undisturbed)
    note(FAULTS[name].__doc__, scene.num_injected, f"same bytes; resumes: {scene.num_resumes}")
