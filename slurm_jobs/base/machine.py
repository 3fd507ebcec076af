"""Facts about the machine and the Python that a process runs in."""

from __future__ import annotations

import fcntl
import getpass
import ipaddress
import os
import platform
import re
import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from slurm_jobs.base.python_packages import installed_packages

_CPU_MODEL_KEYS = ("model name", "cpu", "Model", "Hardware")
"""Keys of /proc/cpuinfo on x86, POWER and ARM; the first one found is used."""
_RATE = re.compile(r"([\d.]+) Gb/sec")
_SIOCGIFADDR = 0x8915
"""Request number from Linux's netdevice(7)."""
_LOCAL_NODE = "local"
_CPUINFO_BYTES = 8192
"""Bytes that include the first core: the kernel generates the text of hundreds of them on each
read."""


def local_node_name(node_rank: int) -> str:
    """Return the local scheduler's name of a node; all of its nodes are this machine."""
    return f"{_LOCAL_NODE}{node_rank}"


def is_local_node(name: str) -> bool:
    """Check whether the local scheduler may have given a node this name."""
    return name.startswith(_LOCAL_NODE) and name.removeprefix(_LOCAL_NODE).isdecimal()


def host_facts() -> Mapping[str, str]:
    """Return name, kernel, architecture and distribution of this host; empty if unknown."""
    system = os.uname()
    distribution = ""
    with suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {
        "name": system.nodename,
        "kernel": f"{system.sysname} {system.release}",
        "machine": system.machine,
        "distribution": distribution,
    }


def cpu_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> Mapping[str, Any]:
    """Return the CPU model (empty if unknown), logical cores, and those that we may use."""
    lines: list[str] = []
    with suppress(OSError), cpuinfo.open("rb") as stream:
        lines = stream.read(_CPUINFO_BYTES).decode(errors="replace").splitlines()
    values: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())  # the first core's
    model = next((values[key] for key in _CPU_MODEL_KEYS if values.get(key)), "")
    usable = len(os.sched_getaffinity(0))
    return {"model": model, "num_cores": os.cpu_count(), "num_usable_cores": usable}


def memory_bytes() -> int | None:
    """Return the machine's memory; None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that is available without swapping; the page cache counts as free."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    assert match is not None  # of every kernel since 3.14
    return int(match[1]) * 1024


class Mount(NamedTuple):
    """File system mounted at a folder; empty texts if none is."""

    kind: str
    """Type of the file system: `ext4`, `nfs4`, `tmpfs`."""
    source: str
    """Device, or the name that the file system gives its origin."""


def mount_of(mountinfo: str, folder: Path) -> Mount:
    """Return the mount that contains a folder, from /proc/self/mountinfo, see proc(5)."""
    deepest, depth = Mount("", ""), 0
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace(r"\040", " "))
        # Of two mounts at one point, the later one hides the earlier one.
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            kind, source, *_ = after.split()
            deepest, depth = Mount(kind, source), len(point.parts)
    return deepest


def network_cards(sys: Path = Path("/sys")) -> Sequence[str]:
    """Return the interfaces of physical cards; in a container, which has none, all but loopback.

    A bridge, bond or VLAN would count the traffic of its card again.
    """
    names = sorted(path.name for path in (sys / "class/net").iterdir())
    real = [name for name in names if (sys / "class/net" / name / "device").exists()]
    return real or [name for name in names if name != "lo"]


def network_links(sys: Path = Path("/sys")) -> list[dict[str, Any]]:
    """Read network cards and InfiniBand ports.

    Each has `name`, `is_up`, and `bits_per_s`, None if unknown.

    Raises:
        OSError: the kernel does not list them.
    """
    links = []
    for name in network_cards(sys):
        folder = sys / "class/net" / name
        megabits = _text(folder / "speed")
        is_known = megabits.isdecimal() and int(megabits) > 0  # -1 if the link is down or virtual
        links.append(
            {
                "name": name,
                "is_up": _text(folder / "operstate") in {"up", "unknown"},
                "bits_per_s": int(megabits) * 1e6 if is_known else None,
            }
        )
    for folder in sorted((sys / "class/infiniband").glob("*/ports/*")):
        rate = _RATE.match(_text(folder / "rate"))
        links.append(
            {
                "name": f"{folder.parent.parent.name} port {folder.name}",
                "is_up": "ACTIVE" in _text(folder / "state"),
                "bits_per_s": float(rate[1]) * 1e9 if rate else None,
            }
        )
    return links


def _text(path: Path) -> str:
    """Return the text of a sysfs file; empty if the driver gives none (EINVAL of an interface)."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def python_facts(folders: Sequence[str]) -> Mapping[str, Any]:
    """Return facts about this Python, and the packages in `folders`, which is its `sys.path`."""
    return {
        "executable": sys.executable,
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "packages": dict(installed_packages(folders)),
    }


def interface_towards(addresses: Iterable[str]) -> str | None:
    """Return the network interface of the route to the first address that has one.

    A name that resolves to a loopback address is skipped: other hosts resolve it differently. A
    numeric address (`127.0.0.1`) is the same everywhere.
    """
    for address in addresses:
        source = _source_address(address)
        if source is None or (_is_loopback(source) and not _is_loopback(address)):
            continue
        name = _interface_of(source)
        if name is not None:
            return name
    return None


def _source_address(address: str) -> str | None:
    """Return the address of this host from which packets to `address` start; None if none can."""
    with suppress(OSError):
        # Any port will do: to connect a UDP socket chooses a route, and sends nothing.
        family, kind, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0]).partition("%")[0]
    return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return False


def _interface_of(address: str) -> str | None:
    """Return the interface that has an address of this host."""
    if ":" in address:
        packed = ipaddress.ip_address(address).packed.hex()
        with suppress(OSError):
            lines = Path("/proc/net/if_inet6").read_text().splitlines()
            return next((line.split()[5] for line in lines if line.startswith(packed)), None)
        return None
    if _is_loopback(address):
        address = "127.0.0.1"  # the network 127.0.0.0/8 belongs to one interface
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with suppress(OSError):  # it has no such address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


def user_name() -> str:
    """Return this user's name; the uid if no account has it, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the second from Python 3.13 on
        return str(os.getuid())
