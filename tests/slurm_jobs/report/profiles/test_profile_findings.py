"""Recommendations from a profile: each cause is found by what it leaves in a trace."""

import pytest

from slurm_jobs.report.profiles.occupancy import occupancy
from slurm_jobs.report.profiles.profile_findings import find, overlap_text
from tests.slurm_jobs.report.profiles.gpu_steps import traced
from tests.slurm_jobs.report.profiles.made_up import event, step

__all__ = ["traced"]

ON_GPU = (step(1, 0, 1000), step(1, 0, 1000, "gpu_user_annotation"))


def test_prefetch_that_overlapped_and_gains_nothing_can_be_read_off(traced):
    gather = event("kernel", "ncclDevKernel_AllGather", 200, 600)
    found = occupancy(traced(*ON_GPU, event("kernel", "gemm", 0, 1000), gather))
    assert overlap_text(found) == (
        "100 % of the communication overlaps with computation; the rest is 0 % of the steps, so "
        "that hiding all of it gives at most 1.00 times the speed."
    )
    assert find(found, has_device=True) == ()


@pytest.mark.parametrize(
    ("events", "title"),
    [
        (
            [event("kernel", "ncclX", 0, 400)],
            "40 % of the steps is communication without computation",
        ),
        (
            [event("kernel", "k", at, at + 4) for at in range(0, 1000, 20)],
            "the device is idle 80 % of the time between short kernels",
        ),
        (
            [event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 100)],
            "copies through memory that is not pinned take 10 %",
        ),
        (
            [event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", at, at + 2) for at in range(60)],
            "60 copies a step, most of them small",
        ),
    ],
)
def test_each_cause_is_found_by_what_it_leaves_in_a_trace(traced, events, title):
    busy = [event("kernel", "gemm", 400, 1000)] if "idle" not in title else []
    (found,) = find(occupancy(traced(*ON_GPU, *events, *busy)), has_device=True)
    assert found.title.startswith(title)
