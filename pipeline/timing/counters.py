"""Kernel counters of a node: processor, memory, disks and network.

Pure functions parse the texts of /proc. The sources keep the previous values, because counters
only grow and a reading is a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from slurm_jobs.common.machine import available_memory_bytes

_SECTOR_BYTES = 512
"""Sector size in /proc/diskstats, whatever the disk's (Documentation/block/stat.rst)."""
_INFINIBAND_UNIT_BYTES = 4
"""port_rcv_data and port_xmit_data count octets divided by 4 (sysfs-class-infiniband)."""
_CPU_COLUMNS = 8
"""user nice system idle iowait irq softirq steal; guests are included in user, see proc(5)."""
_IDLE, _IOWAIT = 3, 4


class Source(Protocol):
    """Source of some fields of a reading."""

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return values by field; rates are means since the previous call, `interval_s` ago.

        Raises:
            OSError, ValueError: they cannot be read now.
        """


class Increase:
    """Growth of counters since the previous reading; columns of several keys are added."""

    def __init__(self) -> None:
        self._last: Mapping[Hashable, Sequence[float]] = {}

    def see(self, now: Mapping[Hashable, Sequence[float]]) -> list[float] | None:
        """Return growth by column, over the keys in both readings; None if there is none.

        A counter that fell (after a reset, or iowait, which the kernel may lower) counts as 0.
        """
        last, self._last = self._last, now
        pairs = [(last[key], columns) for key, columns in now.items() if key in last]
        if not pairs:
            return None
        return [sum(max(0, new[i] - old[i]) for old, new in pairs) for i in range(len(pairs[0][0]))]


class CpuSource:
    """Shares of the time of some cores."""

    def __init__(
        self, cores: Callable[[], Collection[int]], stat: Path = Path("/proc/stat")
    ) -> None:
        self._cores, self._stat = cores, stat
        self._increase = Increase()

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return shares of time; the kernel counts in hundredths of a second."""
        del interval_s  # the cores' counters measure the time
        grown = self._increase.see(read_cpu_ticks(self._stat.read_text(), self._cores()))
        if grown is None or not sum(grown):
            return {}
        idle = grown[_IDLE] + grown[_IOWAIT]
        return {
            "cpu_busy_share": 1 - idle / sum(grown),
            "cpu_iowait_share": grown[_IOWAIT] / sum(grown),
        }


def read_cpu_ticks(text: str, cores: Collection[int]) -> Mapping[Hashable, Sequence[int]]:
    """Parse /proc/stat by core: time in user, nice, system, idle, iowait, irq, softirq, steal."""
    wanted = {f"cpu{core}" for core in cores}
    found: dict[Hashable, Sequence[int]] = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break  # the rest may be long: a number for each interrupt
        name, _, rest = line.partition(" ")
        if name in wanted:
            found[name] = [int(word) for word in rest.split()[:_CPU_COLUMNS]]
    return found


class MemorySource:
    """Available memory of the node."""

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return the available memory."""
        del interval_s  # not a rate
        return {"memory_available_bytes": float(available_memory_bytes())}


class RateSource:
    """Bytes per second in both directions of some counters."""

    def __init__(
        self, fields: tuple[str, str], look: Callable[[], Mapping[Hashable, Sequence[float]]]
    ) -> None:
        self._fields, self._look = fields, look
        self._increase = Increase()

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return bytes per second."""
        grown = self._increase.see(self._look())
        if grown is None or not interval_s > 0:
            return {}
        return {name: grown[i] / interval_s for i, name in enumerate(self._fields)}


def disk_source(prefix: str, devices: Collection[str]) -> RateSource:
    """Return a source for disks by `major:minor`: `PREFIX_read_bytes_per_s` and `_write_`."""

    def look() -> Mapping[Hashable, Sequence[float]]:
        return read_disk_bytes(Path("/proc/diskstats").read_text(), devices)

    return RateSource((f"{prefix}_read_bytes_per_s", f"{prefix}_write_bytes_per_s"), look)


def read_disk_bytes(text: str, devices: Collection[str]) -> Mapping[Hashable, Sequence[float]]:
    """Parse /proc/diskstats by `major:minor`: bytes read and written."""
    found: dict[Hashable, Sequence[float]] = {}
    for line in text.splitlines():
        words = line.split()
        device = f"{words[0]}:{words[1]}"
        if device in devices:
            found[device] = [int(words[5]) * _SECTOR_BYTES, int(words[9]) * _SECTOR_BYTES]
    return found


def network_source(interfaces: Collection[str]) -> RateSource:
    """Return a source for network interfaces by name."""

    def look() -> Mapping[Hashable, Sequence[float]]:
        return read_network_bytes(Path("/proc/net/dev").read_text(), interfaces)

    return RateSource(("network_receive_bytes_per_s", "network_send_bytes_per_s"), look)


def read_network_bytes(
    text: str, interfaces: Collection[str]
) -> Mapping[Hashable, Sequence[float]]:
    """Parse /proc/net/dev by interface: bytes received and sent."""
    found: dict[Hashable, Sequence[float]] = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() in interfaces:
            words = rest.split()
            found[name.strip()] = [int(words[0]), int(words[8])]
    return found


def infiniband_source(ports: Collection[Path]) -> RateSource:
    """Return a source for InfiniBand ports by their folder `counters` in sysfs."""

    def look() -> Mapping[Hashable, Sequence[float]]:
        return {port: read_infiniband_bytes(port) for port in ports}

    return RateSource(("infiniband_receive_bytes_per_s", "infiniband_send_bytes_per_s"), look)


def read_infiniband_bytes(port: Path) -> Sequence[float]:
    """Return bytes received and sent.

    Raises:
        OSError, ValueError: the port does not report them.
    """
    words = [(port / name).read_text() for name in ("port_rcv_data", "port_xmit_data")]
    return [int(word) * _INFINIBAND_UNIT_BYTES for word in words]
