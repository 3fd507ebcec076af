"""What a job may take of a node's memory, as Slurm and cgroups say it."""

from __future__ import annotations

import mmap

import pytest

from pipeline.training.host_memory import (
    cgroup_limits,
    job_memory_bytes,
    resident_bytes,
    slurm_limit,
)
from slurm_jobs.common.machine import memory_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        ({}, None),
        ({"SLURM_MEM_PER_NODE": "2048"}, 2048 * MB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "8"}, 800 * MB),
        ({"SLURM_MEM_PER_GPU": "1000", "SLURM_GPUS_ON_NODE": "4"}, 4000 * MB),
        ({"SLURM_MEM_PER_GPU": "1000"}, None),
    ],
)
def test_slurm_says_it_for_the_node_a_processor_or_a_gpu(environment, limit):
    assert slurm_limit(environment) == limit


def test_limits_of_all_cgroups_around_a_process_count(tmp_path):
    job = tmp_path / "root/slurm/job_7"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job.parent / "memory.max").write_text("5000\n")
    (tmp_path / "root/memory.max").write_text("9000\n")
    (tmp_path / "memory.max").write_text("1\n")  # outside
    (tmp_path / "own").write_text("0::/slurm/job_7/step_0\n")
    assert list(cgroup_limits(tmp_path / "own", tmp_path / "root")) == [5000, 9000]


def test_the_first_version_of_cgroups_has_a_folder_for_memory(tmp_path):
    folder = tmp_path / "memory/slurm/job_7"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("7000\n")
    (tmp_path / "own").write_text("5:cpu,cpuacct:/slurm/job_7\n4:memory:/slurm/job_7\n")
    assert list(cgroup_limits(tmp_path / "own", tmp_path)) == [7000]
    assert list(cgroup_limits(tmp_path / "missing", tmp_path)) == []


def test_a_job_has_no_more_than_the_machine(monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str(1 << 30))
    assert 0 < job_memory_bytes() <= memory_bytes()
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "3")
    assert job_memory_bytes() == 3 * MB


def test_memory_that_is_written_is_resident():
    before = resident_bytes()
    # From the kernel, not from what malloc has kept of other tests.
    with mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for start in range(0, 64 * MB, MB):
            held[start : start + MB] = bytes(MB)
        assert resident_bytes() - before == pytest.approx(64 * MB, rel=0.05)
