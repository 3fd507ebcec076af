"""Facts of a machine; what it does not say is left empty."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.base.machine import (
    available_memory_bytes,
    cpu_facts,
    host_facts,
    interface_towards,
    memory_bytes,
)

OUTSIDE = "198.51.100.1"
"""An address of documentation (RFC 5737): only its route is asked for."""
BINDS = """
import os, socket
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
sockets = {str(link.readlink()) for link in links if link.is_symlink()}
for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
    words = line.split()
    if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:  # it listens
        print(socket.inet_ntoa(bytes.fromhex(words[1].partition(":")[0])[::-1]))
"""


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


def test_the_interface_is_that_of_the_route_and_none_for_a_local_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert interface_towards(["127.0.0.1"]) == "lo"
    assert interface_towards(["localhost", "no.such.host.invalid"]) is None
    real = socket.getaddrinfo
    resolved = {"first": "127.0.1.1", "second": OUTSIDE}  # as Debian's /etc/hosts has the first
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: real(resolved[host], *a, **k))
    assert interface_towards(["first"]) is None
    assert interface_towards(["first", "second"]) == interface_towards(["second"])


@pytest.mark.parametrize("address", ["127.0.0.1", OUTSIDE])
def test_gloo_binds_to_the_interface(address: str) -> None:
    interface = interface_towards([address])
    if interface is None:
        pytest.skip("this machine has no route to other hosts")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": interface}
    output = subprocess.check_output([sys.executable, "-c", BINDS], env=environment, text=True)
    assert output.split() == [own]
