"""A rank that hangs under srun: the signals pass through it, and its step ends with the ranks."""

import pytest

from tests.end_to_end.driver import Driver
from tests.end_to_end.test_stall import run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_rank_that_hangs_under_srun_is_named_and_ended(on_slurm: Driver) -> None:
    _, (record,) = run(on_slurm, hangs="loader", stall_s=5)
    assert " was in the data loader, at read_sample (" in record["reason"]
    assert "; rank 0 waits in a collective, all_reduce called at trains" in record["reason"]
    assert record["failed_rank"] == 1
