"""What a node's memory is: limits of Slurm and of control groups, and what is resident."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline.train.memory.host_memory import cgroup_limits, read_host_memory, slurm_limits
from slurm_jobs.base.machine import memory_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("variables", "mib"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, {"SLURM_MEM_PER_NODE": 4096}),
        (
            {"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "6"},
            {"SLURM_MEM_PER_CPU": 3072},
        ),
        (
            {"SLURM_MEM_PER_GPU": "1000", "SLURM_GPUS_ON_NODE": "4"},
            {"SLURM_MEM_PER_GPU": 4000},
        ),
        ({"SLURM_MEM_PER_GPU": "1000"}, {}),
        ({"SLURM_MEM_PER_NODE": "0"}, {}),
        ({}, {}),
    ],
)
def test_slurm_says_memory_for_a_node_a_cpu_or_a_gpu_and_0_means_all(variables, mib):
    assert slurm_limits(variables) == {name: number * MIB for name, number in mib.items()}


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        (
            "0::/slurm/job_7/step_0\n",
            {
                "slurm/job_7/step_0/memory.max": "max\n",
                "slurm/job_7/memory.max": "1000\n",
                "slurm/memory.max": "9000\n",
            },
            {"slurm/job_7/memory.max": 1000, "slurm/memory.max": 9000},
        ),
        (
            "5:cpuset:/slurm\n4:memory:/slurm/job_7\n",
            {
                "memory/slurm/job_7/memory.limit_in_bytes": "1000\n",
                "memory.max": "5\n",  # not of this hierarchy
            },
            {"memory/slurm/job_7/memory.limit_in_bytes": 1000},
        ),
        ("0::/docker/abc\n", {"memory.max": "1000\n"}, {"memory.max": 1000}),
        (None, {}, {}),
    ],
    ids=["a group and those above it", "version 1", "in a container", "no cgroups"],
)
def test_limits_of_cgroups_are_those_of_their_files(tmp_path, own, files, limits):
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = dict(cgroup_limits(tmp_path / "own", tmp_path / "cgroup"))
    assert found == {str(tmp_path / "cgroup" / name): limit for name, limit in limits.items()}


def test_the_smallest_limit_of_this_machine_counts_and_says_whose_it_is():
    found = read_host_memory({"SLURM_MEM_PER_NODE": "1"})
    assert (found.limit_bytes, found.source) == (MIB, "SLURM_MEM_PER_NODE")
    free = read_host_memory({})
    assert 0 < free.limit_bytes <= memory_bytes()
    assert free.available_bytes > 0


WRITES_64_MIB = """
import mmap
from pipeline.train.memory.host_memory import resident_bytes
before = resident_bytes()
held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for start in range(0, 64 << 20, 1 << 20):
    held[start : start + (1 << 20)] = bytes(1 << 20)
print(resident_bytes() - before)
"""


def test_memory_that_is_written_is_resident():
    # In a process of its own: the kernel may take back what other tests left in this one.
    command = [sys.executable, "-c", WRITES_64_MIB]
    written = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert written == pytest.approx(64 * MIB, rel=0.05)
