"""Ranks under srun that go on living after their function has returned.

Apart from test_late_exit.py, so that only this test waits for the cluster.
"""

import pytest

from tests.end_to_end.driver import Driver
from tests.end_to_end.test_late_exit import completion, stage, submitted

pytestmark = pytest.mark.cluster


def test_ranks_under_srun_are_ended_too(on_slurm: Driver) -> None:
    run_dir = submitted(on_slurm, a=stage(0.5, num_ranks=2, kept_by="thread", ranks=[0, 1]))
    assert on_slurm.wait(run_dir)["status"] == "completed"
    record = completion(run_dir)
    assert "thread `uploader`" in record["reason"]
    assert "1 more rank" in record["reason"]
