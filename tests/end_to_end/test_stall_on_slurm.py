"""A rank that hangs under srun: the signals pass through it, and its step ends with the ranks."""

import pytest

from tests.end_to_end.driver import Driver, wait_for
from tests.end_to_end.test_stall import RELEASED, run, wait_for_rank

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_rank_that_hangs_under_srun_is_named_and_ended(on_slurm: Driver) -> None:
    _, (record,) = run(on_slurm, hangs="loader", stall_s=5)
    assert " was in the data loader, at read_sample (" in record["reason"]
    assert "; rank 0 waits in a collective, all_reduce called at trains" in record["reason"]
    assert record["failed_rank"] == 1


def test_a_request_by_scancel_has_a_rank_without_a_step_write_its_stacks(
    on_slurm: Driver,
) -> None:
    run_dir = on_slurm.submit_text(RELEASED.replace("cluster: local", "cluster: auto"))
    task_dir = run_dir / "tasks/a/s00000.a0001"
    wait_for_rank(task_dir, 0)
    assert on_slurm.cluster is not None
    (job_id,) = on_slurm.cluster.run_as_user(["squeue", "-h", "-o", "%i"]).stdout.split()
    on_slurm.cluster.run_as_user(["scancel", "--batch", "--signal=USR1", job_id])
    stacks = task_dir / "rank-00000.stacks.txt"
    wait_for(lambda: "in until_released" in stacks.read_text(), "the stacks")
    (run_dir / "data/a/released").touch()
    assert on_slurm.wait(run_dir)["status"] == "completed"
