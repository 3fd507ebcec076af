"""Occupancy: every moment of the recorded steps once, whatever runs side by side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.report.profiles.occupancy import occupancy
from slurm_jobs.report.profiles.profile_text import shares
from slurm_jobs.report.profiles.profile_trace import Pieces, Trace
from tests.slurm_jobs.report.profiles.gpu_steps import GPU_STEP, traced
from tests.slurm_jobs.report.profiles.made_up import event, step

__all__ = ["traced"]


def test_a_gpu_is_recognised_by_its_own_timeline(traced):
    trace = traced(*GPU_STEP)
    assert trace.has_device
    found = occupancy(trace)
    assert found.wall_s == pytest.approx(1000e-6)
    assert found.compute_s == pytest.approx(600e-6)
    assert found.communication_s == pytest.approx(300e-6)
    assert found.overlap_s == pytest.approx(200e-6)
    assert found.exposed_s == pytest.approx(100e-6)
    assert found.copies_s == pytest.approx(50e-6)
    assert found.idle_s == pytest.approx(250e-6)
    assert (found.num_gaps, found.longest_gap_s) == (2, pytest.approx(200e-6))
    assert (found.num_pieces, found.num_copies, found.pageable_s) == (2, 1, 0)
    assert sum(shares(found).values()) == pytest.approx(found.wall_s)


def test_a_cpu_trace_is_measured_by_operators_and_gloo(traced):
    trace = traced(
        step(3, 0, 1000),
        event("cpu_op", "aten::mm", 0, 500),
        event("cpu_op", "aten::add", 100, 200),
        event("cpu_op", "FSDP::all_gather", 500, 900),
        event("cpu_op", "gloo:all_gather", 600, 900),
    )
    found = occupancy(trace)
    assert (trace.has_device, found.num_steps) == (False, 1)
    assert found.compute_s == pytest.approx(500e-6)
    assert found.exposed_s == found.communication_s == pytest.approx(300e-6)
    assert found.idle_s == pytest.approx(200e-6)


intervals = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20)), max_size=12)


def pieces(spans):
    ordered = sorted((float(a), float(a + length)) for a, length in spans)
    starts, ends = np.array(ordered or np.empty((0, 2)), np.float64).reshape(-1, 2).T
    return Pieces(starts_s=starts, ends_s=ends, names=("k",) * len(ordered))


@given(intervals, intervals, intervals)
def test_every_moment_counts_once(compute, communication, copies):
    """Against counting whole seconds one by one."""
    trace = Trace(
        has_device=True,
        compute=pieces(compute),
        communication=pieces(communication),
        copies=pieces(copies),
        steps=((0, 10.0, 80.0),),
    )
    found = occupancy(trace)

    def covered(spans):
        return {s for a, length in spans for s in range(a, a + length) if 10 <= s < 80}

    c, m, x = covered(compute), covered(communication), covered(copies)
    assert found.compute_s == len(c)
    assert found.overlap_s == len(c & m)
    assert found.exposed_s == len(m - c)
    assert found.idle_s == 70 - len(c | m | x)
    assert sum(shares(found).values()) == pytest.approx(70)


def test_a_trace_without_marked_steps_is_refused(traced):
    with pytest.raises(ValueError, match="no step is marked"):
        occupancy(traced(event("kernel", "k", 0, 1)))
