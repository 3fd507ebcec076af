"""Thread that records the load of its node every second, during training.

Its errors never fail a training: unreadable values are NaN, and unwritable readings are left
out, each logged once. It ends with the training.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.timing.load.gpu_readings import GpuSource, open_gpus
from pipeline.timing.load.job_processes import JobProcesses
from pipeline.timing.load.kernel_counters import (
    CpuSource,
    RateSource,
    Read,
    read_disk_bytes,
    read_infiniband_bytes,
    read_memory,
    read_network_bytes,
)
from pipeline.timing.load.node_devices import disk_behind, infiniband_ports, whole_disks
from pipeline.timing.whole_records import append_whole
from slurm_jobs.base.machine import network_cards, network_links
from slurm_jobs.formats.configs.training_parts import SamplerConfig
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.system_readings import ReadingPacker, system_path

if TYPE_CHECKING:
    from typing_extensions import Self


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
