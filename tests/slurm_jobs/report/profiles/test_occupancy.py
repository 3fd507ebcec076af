"""Occupancy: every moment of the recorded steps once, whatever runs side by side."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.report.profiles.occupancy import occupancy
from slurm_jobs.report.profiles.profile_findings import find, overlap_text
from slurm_jobs.report.profiles.profile_text import shares
from slurm_jobs.report.profiles.profile_trace import Pieces, Trace, read_trace
from tests.slurm_jobs.report.profiles.made_up import event, step, write_trace

GPU_STEP = (
    step(20, 0, 900),
    step(20, 1000, 2000, "gpu_user_annotation"),
    event("kernel", "gemm", 1000, 1400),
    event("kernel", "gemm", 1500, 1700),
    event("kernel", "ncclDevKernel_AllGather", 1300, 1600),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1750, 1800),
    event("cpu_op", "aten::mm", 100, 800),
    event("kernel", "after the step", 2100, 2200),
)


ON_GPU = (step(1, 0, 1000), step(1, 0, 1000, "gpu_user_annotation"))


@pytest.fixture
def traced(tmp_path):
    return lambda *events: read_trace(write_trace(tmp_path / "t.gz", *events))


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


def flip_middle(data):
    middle = len(data) // 2
    flipped = bytes(byte ^ 0x5A for byte in data[middle : middle + 40])
    return data[:middle] + flipped + data[middle + 40 :]


def with_moment(moment):
    return [*GPU_STEP, {**event("kernel", "k", 1, 2), "ts": moment}]


@pytest.mark.parametrize(
    ("events", "spoil"),
    [
        pytest.param(GPU_STEP, lambda data: data[:-20], id="cut short"),
        pytest.param(GPU_STEP, lambda _: b"no gzip", id="no gzip"),
        pytest.param(GPU_STEP, lambda _: b"", id="empty"),
        pytest.param(GPU_STEP, lambda _: gzip.compress(b"[1, 2]"), id="no trace"),
        pytest.param(GPU_STEP * 40, flip_middle, id="damaged in its middle"),
        *(
            pytest.param(with_moment(moment), bytes, id=f"moment {str(moment)[:5]}")
            for moment in ("x", [1], float("nan"), 10**400)
        ),
    ],
)
def test_a_trace_that_is_damaged_is_named(tmp_path, events, spoil):
    path = write_trace(tmp_path / "t.gz", *events)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DamagedFileError, match=r"t\.gz: no whole Chrome trace"):
        read_trace(path)


def test_a_small_file_that_inflates_to_gigabytes_is_no_trace(tmp_path):
    path = tmp_path / "t.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DamagedFileError, match="more than 16 MiB is not read"):
        read_trace(path, most_bytes=16 << 20)


def test_a_trace_without_marked_steps_is_refused(traced):
    with pytest.raises(ValueError, match="no step is marked"):
        occupancy(traced(event("kernel", "k", 0, 1)))
