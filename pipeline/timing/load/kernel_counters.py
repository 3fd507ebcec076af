"""Kernel counters of a node: processor, memory, disks and network.

Pure functions parse the texts of /proc. The sources keep the previous values, because counters
only grow and a reading is a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path

from slurm_jobs.base.machine import available_memory_bytes

_SECTOR_BYTES = 512
"""Sector size in /proc/diskstats, whatever the disk's (Documentation/block/stat.rst)."""
_INFINIBAND_UNIT_BYTES = 4
"""port_rcv_data and port_xmit_data count octets divided by 4 (sysfs-class-infiniband)."""
_CPU_COLUMNS = 8
"""user nice system idle iowait irq softirq steal; guests are included in user, see proc(5)."""
_IDLE, _IOWAIT = 3, 4
Read = Callable[[float], Mapping[str, float]]
"""Returns values by field of a reading; rates are means since the previous call, so many seconds
ago. Raises OSError or ValueError if they cannot be read now."""


# psutil 7.2 would save about 40 lines here and in `job_processes`. It needs 8 µs less for the
# cores of a node, but twice the time for processes, disks and network cards (138, 62 and 42 µs
# instead of 79, 26 and 25). It also has disks by name, where the records have device numbers, and
# neither sessions nor InfiniBand.
class Increase:
    """Growth of counters since the previous reading; columns of several keys are added."""

    def __init__(self) -> None:
        self._last: Mapping[Hashable, Sequence[float]] = {}

    def see(self, now: Mapping[Hashable, Sequence[float]]) -> list[float] | None:
        """Return growth by column, over the keys in both readings; None if there is none.

        A counter that fell (after a reset, or iowait, which the kernel may lower) counts as 0.
        """
        last, self._last = self._last, now
        growth: list[float] | None = None
        for key, columns in now.items():
            if key in last:
                growth = growth or [0.0] * len(columns)
                for column, (old, new) in enumerate(zip(last[key], columns, strict=True)):
                    growth[column] += max(0, new - old)
        return growth


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
    ticks: dict[Hashable, Sequence[int]] = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break  # the rest may be long: a number for each interrupt
        name, _, rest = line.partition(" ")
        if name in wanted:
            ticks[name] = [int(word) for word in rest.split()[:_CPU_COLUMNS]]
    return ticks


def read_memory(_interval_s: float) -> Mapping[str, float]:
    """Return the available memory of the node."""
    return {"memory_available_bytes": float(available_memory_bytes())}


class RateSource:
    """Bytes per second in both directions of some counters."""

    def __init__(
        self, fields: Sequence[str], look: Callable[[], Mapping[Hashable, Sequence[float]]]
    ) -> None:
        self._fields, self._look = fields, look
        self._increase = Increase()

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return bytes per second."""
        grown = self._increase.see(self._look())
        if grown is None or not interval_s > 0:
            return {}
        return {name: grown[i] / interval_s for i, name in enumerate(self._fields)}


def read_disk_bytes(
    devices: Collection[str], diskstats: Path = Path("/proc/diskstats")
) -> Mapping[Hashable, Sequence[float]]:
    """Return bytes read and written by disk, a `major:minor`."""
    num_bytes: dict[Hashable, Sequence[float]] = {}
    for line in diskstats.read_text().splitlines():
        words = line.split()
        device = f"{words[0]}:{words[1]}"
        if device in devices:
            num_bytes[device] = [int(words[5]) * _SECTOR_BYTES, int(words[9]) * _SECTOR_BYTES]
    return num_bytes


def read_network_bytes(
    interfaces: Collection[str], net_dev: Path = Path("/proc/net/dev")
) -> Mapping[Hashable, Sequence[float]]:
    """Return bytes received and sent by network interface."""
    num_bytes: dict[Hashable, Sequence[float]] = {}
    for line in net_dev.read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() in interfaces:
            words = rest.split()
            num_bytes[name.strip()] = [int(words[0]), int(words[8])]
    return num_bytes


def read_infiniband_bytes(ports: Collection[Path]) -> Mapping[Hashable, Sequence[float]]:
    """Return bytes received and sent by InfiniBand port, its folder `counters` in sysfs."""
    num_bytes: dict[Hashable, Sequence[float]] = {}
    for port in ports:
        received = int((port / "port_rcv_data").read_text())
        sent = int((port / "port_xmit_data").read_text())
        num_bytes[port] = [received * _INFINIBAND_UNIT_BYTES, sent * _INFINIBAND_UNIT_BYTES]
    return num_bytes
