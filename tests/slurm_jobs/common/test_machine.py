"""What a machine does not say is left empty."""

import os
from pathlib import Path

import pytest

from slurm_jobs.common.machine import (
    available_memory_bytes,
    cpu_facts,
    host_facts,
    memory_bytes,
)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7763\n\nmodel name\t: other\n", "AMD EPYC 7763"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
        ("", ""),
        ("\x00\xff no colon", ""),
    ],
)
def test_the_cpu_is_what_the_kernel_calls_it_or_nothing(
    tmp_path: Path, text: str, model: str
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_facts(tmp_path / "cpuinfo")["model"] == model


def test_a_node_without_cpuinfo_still_has_cores_and_memory(tmp_path: Path) -> None:
    facts = cpu_facts(tmp_path / "missing")
    assert facts["model"] == ""
    assert facts["num_cores"] == os.cpu_count()
    assert 1 <= facts["num_usable_cores"] <= facts["num_cores"]
    assert (memory_bytes() or 0) > 2**20


def test_a_host_is_named_with_its_kernel() -> None:
    assert host_facts()["name"] == os.uname().nodename
    assert host_facts()["kernel"].endswith(os.uname().release)


def test_available_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:     7 kB\nBuffers:  1 kB\n")
    assert available_memory_bytes(tmp_path / "meminfo") == 7 * 1024
    assert 0 < available_memory_bytes() <= (memory_bytes() or 0)
