"""Profiled steps on a GPU."""

import pytest

from slurm_jobs.report.profiles.profile_trace import read_trace
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


@pytest.fixture
def traced(tmp_path):
    return lambda *events: read_trace(write_trace(tmp_path / "t.gz", *events))
