"""Sampler of a node's load: processes, counters, GPUs and other devices."""

from __future__ import annotations

import importlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.shared.configs.training_parts import SamplerConfig
from slurm_jobs.shared.files import naming
from slurm_jobs.shared.machine import available_memory_bytes, mount_of, network_cards, network_links
from slurm_jobs.shared.records import TaskContext
from slurm_jobs.shared.timings import MAX_GPUS, ReadingPacker, system_path

if TYPE_CHECKING:
    from typing_extensions import Self


# Appending to a record file so that a full disk never leaves a partial record.


def append_whole(stream: FileIO, data: bytes) -> None:
    """Write all of `data` at the stream's position, or nothing; it must be the end of the file.

    A full disk writes a part of the bytes, and reports the rest only at the next call. A
    partial record would shift, or spoil, all records after it.

    Raises:
        OSError: the file system failed, naming the file; the file is unchanged.
    """
    start, rest = stream.tell(), memoryview(data)
    try:
        with naming(Path(stream.name)):
            while rest:
                rest = rest[stream.write(rest) :]
    except OSError:
        stream.seek(start)  # first: the next write overwrites what cannot be truncated
        stream.truncate()
        raise


# Kernel counters of a node: processor, memory, disks and network.
#
# Pure functions parse the texts of /proc. The sources keep the previous values, because counters
# only grow and a reading is a rate.


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
    names = ("port_rcv_data", "port_xmit_data")
    return {
        port: [int((port / name).read_text()) * _INFINIBAND_UNIT_BYTES for name in names]
        for port in ports
    }


# Disks, network cards and InfiniBand ports of a node; determined once.


_SYS = Path("/sys")


def whole_disks(sys: Path = _SYS) -> Sequence[str]:
    """Return physical disks as `major:minor`: no partitions, RAID or LVM devices."""
    devices = sorted((sys / "block").glob("*/device"))
    return [(path.parent / "dev").read_text().strip() for path in devices]


def disk_behind(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the block device of a folder's file system, as `major:minor`.

    None if it has no single device: a network file system, memory, or several disks.
    """
    device = folder.stat().st_dev
    if os.major(device):
        return f"{os.major(device)}:{os.minor(device)}"
    # btrfs and others use their own device numbers; the mount table names the disk.
    source = mount_of(mounts.read_text(), folder.resolve()).source
    with suppress(OSError):
        if source.startswith("/dev/"):
            number = Path(source).stat().st_rdev
            return f"{os.major(number)}:{os.minor(number)}"
    return None


def infiniband_ports(sys: Path = _SYS) -> Sequence[Path]:
    """Return the counter folder of each port."""
    return sorted((sys / "class/infiniband").glob("*/ports/*/counters"))


# Readings of the job's GPUs from NVML: busy time, memory and power.
#
# Needs the package nvidia-ml-py, whose module is `pynvml`. Without it, or without a driver, there
# are no readings.


def choose_gpus(visible: str | None, uuids: Sequence[str]) -> Sequence[str]:
    """Return the UUIDs of the GPUs in `CUDA_VISIBLE_DEVICES`, at most `MAX_GPUS`.

    Read like CUDA does (its programming guide, "CUDA Environment Variables"): numbers, or
    UUIDs, which may be abbreviated; entries after the first invalid one are ignored. Numbers
    are in NVML's order, by PCI bus, which is CUDA's on nodes with GPUs of one kind.

    If the variable is not set, `visible` is None: all of `uuids`, which are in NVML's order.
    """
    if visible is None:
        return uuids[:MAX_GPUS]
    chosen: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        if word.isdecimal() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
        elif word.startswith("MIG-"):
            chosen.append(word)
        elif word.startswith("GPU-") and (matching := [u for u in uuids if u.startswith(word)]):
            chosen.append(matching[0])
        else:
            break
    return list(dict.fromkeys(chosen))[:MAX_GPUS]


class GpuSource:
    """Reads some GPUs; a value that one of them does not provide is NaN, logged once."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        """Open the GPUs; those that cannot be opened are left out, with a warning."""
        self._nvml = nvml
        self._handles: list[Any] = []
        self._said: set[str] = set()
        self.facts: list[Mapping[str, Any]] = []
        for uuid in uuids:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                fact = {
                    "uuid": uuid,
                    "name": str(nvml.nvmlDeviceGetName(handle)),
                    "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                }
            except nvml.NVMLError as error:
                log.warning("system readings lack the GPU %s: NVML says: %s", uuid, error)
                continue
            self._handles.append(handle)
            self.facts.append(fact)

    def read_all(self) -> Mapping[str, Sequence[float]]:
        """Return values of all GPUs by field."""
        rates = [self._ask("nvmlDeviceGetUtilizationRates", handle) for handle in self._handles]
        memory = [self._ask("nvmlDeviceGetMemoryInfo", handle) for handle in self._handles]
        power_mw = [self._ask("nvmlDeviceGetPowerUsage", handle) for handle in self._handles]
        return {
            "gpu_busy_share": [_part(rate, "gpu") / 100 for rate in rates],
            "gpu_memory_busy_share": [_part(rate, "memory") / 100 for rate in rates],
            "gpu_memory_used_bytes": [_part(info, "used") for info in memory],
            "gpu_power_w": [math.nan if mw is None else mw / 1000 for mw in power_mw],
        }

    def _ask(self, function: str, handle: Any) -> Any:
        try:
            return getattr(self._nvml, function)(handle)
        except self._nvml.NVMLError as error:
            if function not in self._said:
                self._said.add(function)
                log.warning("system readings: a GPU does not answer %s: %s", function, error)
            return None

    def close(self) -> None:
        """Release the driver."""
        self._nvml.nvmlShutdown()


def _part(answer: Any, name: str) -> float:
    return math.nan if answer is None else float(getattr(answer, name))


def open_gpus(
    visible: str | None,
    *,
    load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
    driver: Path = Path("/proc/driver/nvidia/version"),
) -> GpuSource | None:
    """Open the job's GPUs; None if there is none or none is readable, which is logged."""
    if not driver.exists():
        return None
    try:
        nvml = load()
    except ImportError:
        log.warning(
            "system readings have no GPUs: this Python lacks the package nvidia-ml-py "
            "(`pip install nvidia-ml-py`, or slurm-jobs[train])"
        )
        return None
    try:
        nvml.nvmlInit()
        # NVML also counts GPUs that a container or Slurm's cgroup denies
        # (`NVML_ERROR_NO_PERMISSION`), or that have fallen off the bus; CUDA does not number them.
        uuids = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                uuids.append(str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))
            except nvml.NVMLError as error:
                log.info("NVML does not open GPU %d of this node: %s", index, error)
        source = GpuSource(nvml, choose_gpus(visible, uuids))
    except nvml.NVMLError as error:
        log.warning("system readings have no GPUs: NVML says: %s", error)
        return None
    if source.facts:
        return source
    source.close()
    return None


# Processes of this job on this node: their processor time, memory and cores.
#
# They are those of this rank's session: Slurm starts all ranks of a step on a node in one
# session, the local scheduler all ranks of a task. Finding them requires scanning all processes
# of the node, so it is done rarely, and the more rarely the longer it takes.


_SCAN_EVERY_S = 30.0
_SCAN_SHARE = 1e-3
"""Limit of the scan time, as a share of one core."""
_NOT_OURS = frozenset({"slurmstepd"})
"""In the session, but may use every core of the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStat:
    """Fields of /proc/PID/stat, see proc(5)."""

    name: str
    session: int
    cpu_ticks: int
    start_ticks: int
    resident_pages: int


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat; the name, in brackets, may contain anything."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()  # from the state on, the third field there
    return ProcessStat(
        name=head.partition("(")[2],
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
    )


class JobProcesses:
    """Reads `job_cpu_s_per_s` and `job_resident_bytes`."""

    def __init__(
        self,
        *,
        session: int | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        affinity: Callable[[int], Collection[int]] = os.sched_getaffinity,
    ) -> None:
        self._session = os.getsid(0) if session is None else session
        self._proc, self._clock, self._affinity = proc, clock, affinity
        self._pids: list[int] = []
        self._cores: frozenset[int] = frozenset(affinity(0))
        self._next_scan_s = -float("inf")
        self._increase = Increase()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def cores(self) -> Collection[int]:
        """Return the cores that any known process may use: ranks have different ones."""
        return self._cores

    def read(self, interval_s: float) -> Mapping[str, float]:
        """Return the rates; a process counts from the first reading after its discovery."""
        if self._clock() >= self._next_scan_s:
            self.scan()
        stats = {pid: stat for pid in self._pids if (stat := self._stat(pid)) is not None}
        grown = self._increase.see(
            {(pid, stat.start_ticks): [stat.cpu_ticks] for pid, stat in stats.items()}
        )
        values = {
            "job_resident_bytes": float(
                self._page_bytes * sum(stat.resident_pages for stat in stats.values())
            )
        }
        if grown is not None and interval_s > 0:
            values["job_cpu_s_per_s"] = grown[0] * self._tick_s / interval_s
        return values

    def scan(self) -> None:
        """Find the processes and the cores that they may use."""
        begun_s = self._clock()
        self._pids, cores = [], set(self._affinity(0))
        for name in os.listdir(self._proc):  # noqa: PTH208 - Path.iterdir costs twice the time
            stat = self._stat(int(name)) if name.isdecimal() else None
            if stat is None or stat.session != self._session or stat.name in _NOT_OURS:
                continue
            self._pids.append(int(name))
            with suppress(OSError):  # it has ended meanwhile
                cores |= set(self._affinity(int(name)))
        self._cores = frozenset(cores)
        now_s = self._clock()
        self._next_scan_s = now_s + max(_SCAN_EVERY_S, (now_s - begun_s) / _SCAN_SHARE)

    def _stat(self, pid: int) -> ProcessStat | None:
        """Read a process's fields; None if it no longer exists."""
        with suppress(OSError), open(f"{self._proc}/{pid}/stat", errors="replace") as stream:  # noqa: PTH123 - once a process of the node
            return parse_stat(stream.read())
        return None


# Thread that records the load of its node every second, during training.
#
# Its errors never fail a training: unreadable values are NaN, and unwritable readings are left
# out, each logged once. It ends with the training.


log = logging.getLogger(__name__)

_JOIN_S = 5.0
"""Wait for a reading that hangs in a driver; the daemon thread is then abandoned."""
_LAST_SHARE = 0.5
"""Part of an interval after which a last reading is taken at the end: less is not meaningful."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Sources of a node."""

    host: Mapping[str, Read]
    """By a name for messages."""
    gpus: GpuSource | None
    metadata: Mapping[str, Any]
    """Constants for the header of the file."""


def find_sources(local_dir: Path, variables: Mapping[str, str]) -> Sources:
    """Return all sources of this node; missing ones are left out, and logged."""
    disks = _found("disks", whole_disks) or []
    local_disk = _found("the disk of the node-local folder", partial(disk_behind, local_dir))
    cards = _found("network cards", network_cards) or []
    ports = _found("InfiniBand ports", infiniband_ports) or []
    processes = JobProcesses()
    processes.scan()
    host: dict[str, Read] = {
        "processes": processes.read,  # first: it finds the cores
        "processor": CpuSource(processes.cores).read,
        "memory": read_memory,
    }
    local_disks = [local_disk] if local_disk else []
    rates: list[tuple[str, str, str, Callable[[Any], Any], Collection[Any]]] = [
        ("disks", "disk", "read write", read_disk_bytes, disks),
        ("local disk", "local_disk", "read write", read_disk_bytes, local_disks),
        ("network", "network", "receive send", read_network_bytes, cards),
        ("InfiniBand", "infiniband", "receive send", read_infiniband_bytes, ports),
    ]
    for name, prefix, directions, look, places in rates:
        if places:
            fields = [f"{prefix}_{direction}_bytes_per_s" for direction in directions.split()]
            host[name] = RateSource(fields, partial(look, places)).read
    gpus = open_gpus(variables.get("CUDA_VISIBLE_DEVICES"))
    metadata = {
        "cores": sorted(processes.cores()),
        "disks": list(disks),
        "local_disk": local_disk,
        "network_cards": list(cards),
        "infiniband_ports": [str(port) for port in ports],
        "links": _found("the speed of links", network_links) or [],
        "gpus": list(gpus.facts) if gpus is not None else [],
    }
    return Sources(host=host, gpus=gpus, metadata=metadata)


def _found(what: str, look: Callable[[], Any]) -> Any:
    try:
        return look()
    except (OSError, ValueError, IndexError) as error:
        log.warning("system readings lack %s: %s", what, error)
        return None


class SystemSampler:
    """Takes a reading every `every_s` seconds inside a `with` block.

    `take` takes one immediately; the thread does nothing else.
    """

    def __init__(
        self,
        path: Path,
        sources: Sources,
        *,
        every_s: float,
        metadata: Mapping[str, Any],
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sources, self._every_s = sources, every_s
        self._monotonic, self._now = monotonic, now
        gpus = sources.gpus
        self._packer = ReadingPacker(len(gpus.facts) if gpus is not None else 0)
        self._stream = path.open("xb", buffering=0)
        about = {"every_s": every_s, **sources.metadata, **metadata}
        append_whole(self._stream, self._packer.header(about))
        self._said: set[str] = set()
        self._number = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system-sampler", daemon=True)
        self._last_s = monotonic()
        self._read(0.0)  # initial values of the counters

    def take(self) -> None:
        """Write a reading of the time since the previous one."""
        now_s, unix_s = self._monotonic(), self._now()  # reading may take a while
        interval_s, self._last_s = now_s - self._last_s, now_s
        host, gpus = self._read(interval_s)
        record = self._packer.pack(
            self._number + 1, unix_s=unix_s, interval_s=interval_s, host=host, gpus=gpus
        )
        try:
            append_whole(self._stream, record)
        except OSError as error:
            self._say("writing", f"system readings are lost: {error}")
            return
        self._number += 1

    def _read(self, interval_s: float) -> tuple[dict[str, float], Mapping[str, Any]]:
        host: dict[str, float] = {}
        for name, read in self._sources.host.items():
            try:
                host |= read(interval_s)
            except (OSError, ValueError, IndexError) as error:
                self._say(name, f"system readings lack {name}: {error}")
        gpus = self._sources.gpus
        return host, gpus.read_all() if gpus is not None else {}

    def _say(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning(text)

    def _run(self) -> None:
        try:
            due_s = self._last_s + self._every_s
            while not self._ended.wait(max(0.0, due_s - self._monotonic())):
                self.take()
                # missed readings are not repeated
                due_s = max(due_s + self._every_s, self._monotonic())
        except Exception:  # training continues without its readings
            log.exception("system readings end here")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            log.warning("a system reading hangs; its thread is abandoned")
            return
        try:
            with ExitStack() as open_things:
                if self._sources.gpus is not None:
                    open_things.callback(self._sources.gpus.close)
                open_things.enter_context(self._stream)
                if self._monotonic() - self._last_s >= _LAST_SHARE * self._every_s:
                    self.take()
        except Exception:  # as in `_run`
            log.exception("the end of the system readings")


@contextmanager
def sample_system(config: SamplerConfig, context: TaskContext) -> Iterator[None]:
    """Sample this node while the block runs, on its first rank; nothing on the others."""
    with ExitStack() as running:
        try:
            if config.every_s is not None and context.local_rank == 0:
                sampler = SystemSampler(
                    system_path(context.timing_dir, context.node_rank),
                    find_sources(context.node_local_dir, os.environ),
                    every_s=config.every_s,
                    metadata={"node_name": context.node_name, "node_rank": context.node_rank},
                )
                running.enter_context(sampler)
        except Exception:  # as in `SystemSampler._run`
            log.exception("no system readings of this node")
        yield
