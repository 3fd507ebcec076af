"""What of a node's memory a job may use."""

from __future__ import annotations

import mmap

import pytest

from pipeline.train.host_memory import (
    cgroup_limits,
    read_host_memory,
    resident_bytes,
    slurm_limits,
)
from slurm_jobs.shared.machine import memory_bytes

MIB = 2**20


def test_slurm_says_memory_for_a_node_a_cpu_or_a_gpu_and_0_means_all():
    assert slurm_limits({"SLURM_MEM_PER_NODE": "4096"}) == {"SLURM_MEM_PER_NODE": 4096 * MIB}
    by_cpu = {"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "6"}
    assert slurm_limits(by_cpu) == {"SLURM_MEM_PER_CPU": 3072 * MIB}
    by_gpu = {"SLURM_MEM_PER_GPU": "1000", "SLURM_GPUS_ON_NODE": "4"}
    assert slurm_limits(by_gpu) == {"SLURM_MEM_PER_GPU": 4000 * MIB}
    assert slurm_limits({"SLURM_MEM_PER_GPU": "1000"}) == {}
    assert slurm_limits({"SLURM_MEM_PER_NODE": "0"}) == {}
    assert slurm_limits({}) == {}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_a_group_and_of_those_above_it_count(tmp_path):
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text("0::/slurm/job_7/step_0\n")
    write(root / "slurm/job_7/step_0/memory.max", "max\n")
    write(root / "slurm/job_7/memory.max", "1000\n")
    write(root / "slurm/memory.max", "9000\n")
    found = dict(cgroup_limits(own, root))
    assert found == {
        str(root / "slurm/job_7/memory.max"): 1000,
        str(root / "slurm/memory.max"): 9000,
    }


def test_groups_of_version_1_have_another_file_and_folder(tmp_path):
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text("5:cpuset:/slurm\n4:memory:/slurm/job_7\n")
    write(root / "memory/slurm/job_7/memory.limit_in_bytes", "1000\n")
    write(root / "memory.max", "5\n")  # not of this hierarchy
    assert list(cgroup_limits(own, root)) == [
        (str(root / "memory/slurm/job_7/memory.limit_in_bytes"), 1000)
    ]


def test_in_a_container_the_limit_lies_at_the_root(tmp_path):
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text("0::/docker/abc\n")
    write(root / "memory.max", "1000\n")
    assert dict(cgroup_limits(own, root)) == {str(root / "memory.max"): 1000}


def test_without_cgroups_there_is_no_limit(tmp_path):
    assert dict(cgroup_limits(tmp_path / "nothing", tmp_path)) == {}


def test_the_smallest_limit_of_this_machine_counts_and_says_whose_it_is():
    found = read_host_memory({"SLURM_MEM_PER_NODE": "1"})
    assert (found.limit_bytes, found.source) == (MIB, "SLURM_MEM_PER_NODE")
    free = read_host_memory({})
    assert 0 < free.limit_bytes <= memory_bytes()
    assert free.available_bytes > 0


def test_memory_that_is_written_is_resident():
    before = resident_bytes()
    # From the kernel, not from what malloc has kept of other tests.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for start in range(0, 64 * MIB, MIB):
            held[start : start + MIB] = bytes(MIB)
        assert resident_bytes() - before == pytest.approx(64 * MIB, rel=0.05)
