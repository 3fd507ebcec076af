"""A rank that hangs under srun: the signals pass through it, and its step ends with the ranks."""

import pytest

from tests.end_to_end.driver import Driver
from tests.end_to_end.test_stall import run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_rank_that_hangs_under_srun_is_named_and_the_next_attempt_completes(
    on_slurm: Driver,
) -> None:
    _, (first, second) = run(on_slurm, retries=1, hangs="loader", stall_s=5)
    assert (first["failed_rank"], second["outcome"]) == (1, "completed")
    assert " was in the data loader, at read_sample (" in first["reason"]
    assert "; rank 0 waits in a collective, all_reduce called at trains" in first["reason"]
