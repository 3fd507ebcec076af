"""Load of nodes in words, for terminal and page. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.values.load_model import Level, NodeLoad

LOAD_COLUMNS = (
    "node", "GPU busy", "p5 to p95", "GPU memory", "CPU busy", "job's cores", "waits for disks",
    "disk read", "received",
)  # fmt: skip


def least_busy(load: NodeLoad) -> float:
    """Return the sort key of nodes: those with the most idle devices come first."""
    busy = load.gpu_busy or load.cpu_busy
    return busy.mean if busy is not None else 1.0


def load_row(load: NodeLoad) -> list[str]:
    """Return the cells in the order of `LOAD_COLUMNS`."""
    gpu = load.gpu_busy
    memory = units.NOT_KNOWN
    if load.gpu_memory_peak_bytes is not None and load.gpu_memory_bytes:
        share = load.gpu_memory_peak_bytes / load.gpu_memory_bytes
        memory = f"{units.num_bytes(load.gpu_memory_peak_bytes)} ({units.percent(share)})"
    cores = load.job_cpu_cores
    return [
        load.node,
        _percent(gpu),
        f"{units.percent(gpu.p5)} to {units.percent(gpu.p95)}" if gpu else units.NOT_KNOWN,
        memory,
        _percent(load.cpu_busy),
        f"{cores.mean:.1f} of {load.num_cores}" if cores else units.NOT_KNOWN,
        _percent(load.cpu_iowait),
        _rate(load.disk_read),
        _rate(load.network_receive),
    ]


def load_table(loads: Sequence[NodeLoad]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows, without columns that no node has."""
    rows = [load_row(load) for load in loads]
    columns = [
        n for n in range(len(LOAD_COLUMNS)) if any(row[n] != units.NOT_KNOWN for row in rows)
    ]
    return [LOAD_COLUMNS[n] for n in columns], [[row[n] for n in columns] for row in rows]


def load_line(load: NodeLoad) -> str:
    """Return the load in one line, without unknown values."""
    pairs = zip(LOAD_COLUMNS[1:], load_row(load)[1:], strict=True)
    listed = ", ".join(f"{name} {value}" for name, value in pairs if value != units.NOT_KNOWN)
    return f"{load.node}: {listed}"


def _percent(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else units.percent(level.mean)


def _rate(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else f"{units.num_bytes(level.mean)}/s"
